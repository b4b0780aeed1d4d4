"use strict";
// Sort the table by a column when its heading is pressed; rows without a value come last.
for (const table of document.querySelectorAll("table.results")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const words = new Intl.Collator(undefined, { numeric: true });
  const key = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? cell.dataset.value : cell.textContent;
  };
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const numeric = [...body.rows].every((row) => "value" in row.cells[column].dataset);
      const sign = down ? -1 : 1;
      const sorted = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * (numeric ? Number(x) - Number(y) : words.compare(x, y));
      });
      body.append(...sorted);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      document.getElementById("sorted").textContent =
        `Sorted by ${head.textContent.trim()}, ${down ? "descending" : "ascending"}.`;
    });
  });
}

// Copy a command; select it if the browser gives local pages no access to the clipboard.
for (const button of document.querySelectorAll("button.copy")) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = document.getElementById(button.dataset.copy);
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: press Ctrl-C";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// Unfold the target of a link.
const unfold = (root) => root.querySelectorAll("details.fold").forEach((d) => { d.open = true; });
const follow = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) unfold(target);
};
addEventListener("hashchange", follow);
follow();
