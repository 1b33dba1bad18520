/** What is shown in a page's place. */

import { type ErrorComponentProps, Link } from "@tanstack/react-router";

import { Button, Message } from "./basics";

export function NotFound() {
  return (
    <Message title="There is no page at this address.">
      <Link to="/">All runs</Link>
    </Message>
  );
}

/** A part of the page that is gone is that of an older build: the view was updated while the page was open. */
export function Broken({ error }: ErrorComponentProps) {
  const said = error instanceof Error ? error.message : String(error);
  const isOlder = /dynamically imported module|module script|preload CSS/i.test(said);
  return (
    <Message bad title={isOlder ? "The view was updated while this page was open." : `This page failed: ${said}`}>
      <div>
        <Button onPress={() => window.location.reload()}>Load it again</Button>
      </div>
    </Message>
  );
}
