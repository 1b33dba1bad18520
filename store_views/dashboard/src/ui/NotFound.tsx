/** What is shown in a page's place. */

import { useQuery } from "@tanstack/react-query";
import { type ErrorComponentProps, Link } from "@tanstack/react-router";

import { positionsQuery } from "../api/runs";
import { Button, ErrorMessage, Message } from "./basics";
import { OtherBuildError } from "./parts";

export function NotFound() {
  return (
    <Message title="There is no page at this address.">
      <Link to="/">All runs</Link>
    </Message>
  );
}

/** In place of a page of which a part is on its way. */
export function Away() {
  const { error } = useQuery(positionsQuery);
  return error ? <ErrorMessage error={error} /> : <p>Asking the view …</p>;
}

export function Broken({ error }: ErrorComponentProps) {
  const said = error instanceof Error ? error.message : String(error);
  return (
    <Message bad title={error instanceof OtherBuildError ? said : `This page failed: ${said}`}>
      <div>
        <Button onPress={() => window.location.reload()}>Load it again</Button>
      </div>
    </Message>
  );
}
