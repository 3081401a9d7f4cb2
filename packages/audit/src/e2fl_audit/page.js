"use strict";
// The page is complete without this: it only lets the reader change the order of groups.
const number = (text) => {
  const found = parseFloat(text);
  return Number.isNaN(found) ? -Infinity : found;
};
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.value ?? cell.textContent.replaceAll(",", "");
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (column === 0 ? key(a).localeCompare(key(b)) : number(key(a)) - number(key(b))));
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    });
  });
}
for (const plots of document.querySelectorAll(".plots")) {
  const bar = document.createElement("div");
  bar.className = "order";
  bar.append("Order of groups:");
  const orders = {
    "by value": null,
    "by size": (a, b) => number(b.dataset.n) - number(a.dataset.n),
    "by name": (a, b) => a.dataset.name.localeCompare(b.dataset.name),
  };
  const first = new Map([...plots.querySelectorAll("svg")].map((svg) => [svg, [...svg.querySelectorAll("g.row")]]));
  const tops = new Map([...first].map(([svg, rows]) => [svg, rows.map((row) => row.getAttribute("transform"))]));
  for (const [title, order] of Object.entries(orders)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title;
    button.setAttribute("aria-pressed", String(order === null));
    button.addEventListener("click", () => {
      bar.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      for (const [svg, rows] of first) {
        const sorted = order === null ? rows : [...rows].sort(order);
        sorted.forEach((row, place) => row.setAttribute("transform", tops.get(svg)[place]));
      }
    });
    bar.append(button);
  }
  plots.before(bar);
}
