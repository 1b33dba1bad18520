/** An answer with any number of rows, of which only those in sight are in the document. */

import { type ReactNode, useMemo, useRef } from "react";
import { useVirtualizer } from "@tanstack/react-virtual";

import type { ArrowAnswer } from "../api/arrow";
import { plural } from "../format";
import { classes } from "./basics";
import ui from "./ui.module.css";

const ROW_PX = 34;
const CELL_CHARACTERS = 300;

/** Columns are as wide as their first rows want, so that they stay where they are when the table is scrolled. */
const MEASURED_ROWS = 200;
const WIDTH_CH = { min: 6, max: 60 };

interface LongTableProps {
  label: string;
  answer: ArrowAnswer;
  empty: ReactNode;
}

export function LongTable({ label, answer, empty }: LongTableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: answer.rowCount,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const widths = useMemo(() => widthsOf(answer), [answer]);
  if (answer.rowCount === 0) return <div className={ui["panelBody"]}>{empty}</div>;
  const shown = rows.getVirtualItems();
  const above = shown[0]?.start ?? 0;
  const below = rows.getTotalSize() - (shown.at(-1)?.end ?? 0);
  return (
    <div ref={scroller} className={ui["longTable"]} tabIndex={0} role="region" aria-label={`${label}, ${plural(answer.rowCount, "row")}`}>
      <table className={ui["table"]} aria-rowcount={answer.rowCount + 1}>
        <colgroup>
          {widths.map((width, index) => (
            <col key={index} style={{ width: `calc(${width}ch + 36px)` }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {answer.columns.map(({ name, number }, index) => (
              <th key={index} scope="col" className={classes(number && ui["number"])}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Space px={above} />
          {shown.map(({ index }) => (
            <tr key={index} aria-rowindex={index + 2} style={{ height: ROW_PX }}>
              {answer.columns.map(({ number }, column) => (
                <td key={column} className={classes(ui["mono"], number && ui["number"])}>
                  <Cell text={answer.textAt(index, column)} />
                </td>
              ))}
            </tr>
          ))}
          <Space px={below} />
        </tbody>
      </table>
    </div>
  );
}

function Space({ px }: { px: number }) {
  return px > 0 ? <tr aria-hidden="true" style={{ height: px }} /> : null;
}

function Cell({ text }: { text: string | null }) {
  if (text === null) return <span className={ui["muted"]}>null</span>;
  const start = text.length > CELL_CHARACTERS ? `${text.slice(0, CELL_CHARACTERS)} …` : text;
  return <span title={start}>{start}</span>;
}

function widthsOf(answer: ArrowAnswer): number[] {
  const measured = Math.min(answer.rowCount, MEASURED_ROWS);
  return answer.columns.map(({ name }, column) => {
    let width = Math.max(name.length, WIDTH_CH.min);
    for (let row = 0; row < measured; row++) width = Math.max(width, answer.textAt(row, column)?.length ?? 4);
    return Math.min(width, WIDTH_CH.max);
  });
}
