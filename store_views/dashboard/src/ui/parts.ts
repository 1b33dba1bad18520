/** Parts of the page that are loaded when they are needed, also where the view is away meanwhile. */

const PAUSE_MS = 500;
const PAUSE_MAX_MS = 8_000;
/** A view that answers and does not have the part is asked so often. */
const TRIES_MAX = 3;

/** The view has another build than this page is of. */
export class OtherBuildError extends Error {}

/** Load a part, again and again while the view does not answer. */
export async function part<Part>(load: () => Promise<Part>): Promise<Part> {
  let tries = 0;
  for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, PAUSE_MAX_MS)) {
    try {
      return await load();
    } catch (error) {
      const build = await buildThere();
      if (build !== null && build !== ownBuild()) throw new OtherBuildError("The view was updated while this page was open.");
      if (build !== null && ++tries >= TRIES_MAX) throw new Error("a part of it cannot be loaded", { cause: error });
    }
    await new Promise((resolve) => window.setTimeout(resolve, pause));
  }
}

/** Names of the scripts and styles that a page begins with: they change with the build. */
function buildOf(page: Document): string {
  return [...page.querySelectorAll("script[src], link[rel=stylesheet]")]
    .map((element) => element.getAttribute("src") ?? element.getAttribute("href") ?? "")
    .filter((address) => address.includes("/assets/index-"))
    .sort()
    .join(" ");
}

function ownBuild(): string {
  return buildOf(document);
}

/** The build that the view has now; null while it does not answer. */
async function buildThere(): Promise<string | null> {
  try {
    const answer = await fetch("/", { headers: { accept: "text/html" }, cache: "no-store" });
    return answer.ok ? buildOf(new DOMParser().parseFromString(await answer.text(), "text/html")) : null;
  } catch {
    return null;
  }
}
