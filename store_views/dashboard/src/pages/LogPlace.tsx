/** The exact place of a record in the log. */

import ui from "../ui/ui.module.css";

interface LogPlaceProps {
  topic: string;
  partition: number | null;
  offset: number | null;
}

export function LogPlace({ topic, partition, offset }: LogPlaceProps) {
  if (partition === null || offset === null || partition < 0 || offset < 0) return null;
  return <span className={`${ui["muted"]} ${ui["mono"]}`}>{`${topic}/${partition} @ ${offset}`}</span>;
}
