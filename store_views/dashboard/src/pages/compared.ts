/** The other runs of an address: the name of one, or several as JSON, since a name may be any text. */
export function runsOf(compare: string | undefined): string[] {
  if (!compare) return [];
  try {
    const several: unknown = JSON.parse(compare);
    return Array.isArray(several) ? [...new Set(several.filter((id) => typeof id === "string"))] : [compare];
  } catch {
    return [compare];
  }
}

export function comparedAs(ids: readonly string[]): string | undefined {
  return ids.length > 1 || ids[0]?.startsWith("[") ? JSON.stringify(ids) : ids[0];
}
