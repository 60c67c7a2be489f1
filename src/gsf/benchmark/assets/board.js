for (const table of document.querySelectorAll("table.board")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  for (const row of body.rows) for (const cell of row.cells) cell.dataset.name = heads[cell.cellIndex].textContent;
  heads.forEach((head, n) => head.firstElementChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : n === 0 || n === 2;
    heads.forEach(x => x.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[n].dataset.v;
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if ((x === "") !== (y === "")) return x === "" ? 1 : -1;
      return (up ? 1 : -1) * (n ? x - y : x.localeCompare(y));
    });
    body.append(...rows);
  }));
}
