// A box that grows at its end, and shows the end as long as its reader is there.

/** So near to the end a reader is at it. */
const NEAR_PX = 48;

export interface Follower {
  /** Whether the reader is at the end. */
  readonly at: boolean;
  /** Go to the end, and stay there. */
  pin(): void;
  /** The attachment of the box, whose first child holds all that it shows. */
  box(element: HTMLElement): () => void;
}

export function follows(): Follower {
  let at = $state(true);
  let box: HTMLElement | undefined;

  function end(): void {
    if (box !== undefined) box.scrollTop = box.scrollHeight;
  }

  return {
    get at() {
      return at;
    },
    pin() {
      at = true;
      end();
    },
    box(element) {
      box = element;
      const look = (): void => {
        at = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
      };
      const watcher = new ResizeObserver(() => {
        if (at) end();
      });
      for (const each of [element, ...element.children]) watcher.observe(each);
      element.addEventListener("scroll", look, { passive: true });
      return () => {
        watcher.disconnect();
        element.removeEventListener("scroll", look);
        box = undefined;
      };
    },
  };
}
