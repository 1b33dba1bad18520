import { Link } from "@tanstack/react-router";

import { Message } from "./basics";

export function NotFound() {
  return (
    <Message title="There is no page at this address.">
      <Link to="/">All runs</Link>
    </Message>
  );
}
