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
  /** Rows can be sorted by it. */
  sortable?: boolean;
}

/** `-` before the column's id: the lowest first. */
export interface Sorting {
  by: string | undefined;
  onSort: (by: string | undefined) => void;
}

interface DataTableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  rowKey: (row: Row, index: number) => string;
  empty?: ReactNode;
  /** Rows that are shown until somebody asks for more. */
  atFirst?: number;
  sorting?: Sorting;
}

const AT_FIRST = 50;
const MORE = 500;

export function DataTable<Row extends object>({ label, rows, columns, rowKey, empty, atFirst = AT_FIRST, sorting }: DataTableProps<Row>) {
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
  const labels = new Map(columns.map((column) => [column.id, column.header]));
  const sortable = new Set(columns.filter((column) => column.sortable).map((column) => column.id));
  const [more, setMore] = useState(0);
  const shown = useMemo(() => rows.slice(0, atFirst + more), [rows, atFirst, more]);
  const left = rows.length - shown.length;
  const table = useTable({ features, columns: definitions, data: shown, getRowId: rowKey });
  if (rows.length === 0 && empty !== undefined) return <div className={styles["panelBody"]}>{empty}</div>;
  return (
    <div className={styles["tableScroll"]} tabIndex={0} role="region" aria-label={label}>
      <table className={classes(styles["table"], sorting && styles["sorted"])}>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => (
                <th
                  key={header.id}
                  scope="col"
                  className={classes(numeric.has(header.column.id) && styles["number"])}
                  aria-sort={sortable.has(header.column.id) ? sortOf(header.column.id, sorting?.by) : undefined}
                >
                  {sorting && sortable.has(header.column.id) ? (
                    <button type="button" className={styles["sort"]} onClick={() => sorting.onSort(nextSort(header.column.id, sorting.by))}>
                      <table.FlexRender header={header} />
                      <span aria-hidden="true">{ARROWS[sortOf(header.column.id, sorting.by) ?? ""]}</span>
                    </button>
                  ) : (
                    <table.FlexRender header={header} />
                  )}
                </th>
              ))}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id}>
              {row.getAllCells().map((cell) => (
                <td key={cell.id} data-label={labels.get(cell.column.id)} className={classes(numeric.has(cell.column.id) && styles["number"])}>
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

const ARROWS: Record<string, string> = { ascending: " ▲", descending: " ▼" };

function sortOf(column: string, by: string | undefined): "ascending" | "descending" | undefined {
  if (by === column) return "descending";
  return by === `-${column}` ? "ascending" : undefined;
}

/** The highest first, then the lowest, then as they came. */
function nextSort(column: string, by: string | undefined): string | undefined {
  if (by === column) return `-${column}`;
  return by === `-${column}` ? undefined : column;
}
