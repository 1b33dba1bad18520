/** A table of rows with named columns; TanStack Table holds the model, this the markup. */

import { type ReactNode, useMemo, useState } from "react";
import { type ColumnDef, tableFeatures, useTable } from "@tanstack/react-table";

import { count, plural } from "../format";
import { Button, classes } from "./basics";
import styles from "./ui.module.css";

const features = tableFeatures({});

export interface Column<Row> {
  id: string;
  header: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand at the right. */
  number?: boolean;
}

interface DataTableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  rowKey: (row: Row, index: number) => string;
  empty?: ReactNode;
  /** Rows that are shown until somebody asks for more. */
  atFirst?: number;
}

const AT_FIRST = 50;
const MORE = 500;

export function DataTable<Row extends object>({ label, rows, columns, rowKey, empty, atFirst = AT_FIRST }: DataTableProps<Row>) {
  const definitions = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, Row> => ({
          id: column.id,
          header: column.header,
          cell: ({ row }) => column.cell(row.original),
        }),
      ),
    [columns],
  );
  const numeric = new Set(columns.filter((column) => column.number).map((column) => column.id));
  const [more, setMore] = useState(0);
  const shown = useMemo(() => rows.slice(0, atFirst + more), [rows, atFirst, more]);
  const left = rows.length - shown.length;
  const table = useTable({ features, columns: definitions, data: shown, getRowId: rowKey });
  if (rows.length === 0 && empty !== undefined) return <div className={styles["panelBody"]}>{empty}</div>;
  return (
    <div className={styles["tableScroll"]} tabIndex={0} role="region" aria-label={label}>
      <table className={styles["table"]}>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => (
                <th key={header.id} scope="col" className={classes(numeric.has(header.column.id) && styles["number"])}>
                  <table.FlexRender header={header} />
                </th>
              ))}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id}>
              {row.getAllCells().map((cell) => (
                <td key={cell.id} className={classes(numeric.has(cell.column.id) && styles["number"])}>
                  <table.FlexRender cell={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {left > 0 && (
        <div className={styles["more"]}>
          <Button onPress={() => setMore(more + MORE)}>Show {count(Math.min(left, MORE))} more</Button>
          <span className={styles["muted"]}>
            {count(shown.length)} of {plural(rows.length, "row")}
          </span>
        </div>
      )}
    </div>
  );
}
