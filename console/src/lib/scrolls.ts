// Boxes whose content can be wider than they are.

/** Let the keyboard reach a box for as long as it scrolls (WCAG 2.1.1); it goes by the name of the section around it. */
export function scrolls(box: HTMLElement): () => void {
  const look = (): void => {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      box.role = "region";
      box.ariaLabel = `${nameAround(box)}, as a table`;
    } else {
      box.removeAttribute("tabindex");
      box.role = null;
      box.ariaLabel = null;
    }
  };
  const watcher = new ResizeObserver(look);
  for (const each of [box, ...box.children]) watcher.observe(each);
  return () => watcher.disconnect();
}

function nameAround(box: HTMLElement): string {
  const section = box.parentElement?.closest("section, main");
  return section?.ariaLabel ?? section?.querySelector("h1, h2, h3")?.textContent ?? "All of it";
}
