"use strict";
(() => {
  const order = new Intl.Collator(undefined, { numeric: true });

  function compare(kind, up) {
    return (a, b) => {
      if (a.value === "" || b.value === "") return (a.value === "") - (b.value === "");
      const apart =
        kind === "number" ? Number(a.value) - Number(b.value) : order.compare(a.value, b.value);
      return up ? apart : -apart;
    };
  }

  function sort(table, head) {
    const kind = head.dataset.sort;
    const now = head.getAttribute("aria-sort");
    // Largest numbers first, then the other way; names from A.
    const up = now ? now === "descending" : kind !== "number";
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({
      row,
      value: row.cells[head.cellIndex].dataset.value,
    }));
    rows.sort(compare(kind, up));
    body.append(...rows.map((one) => one.row));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  for (const table of document.querySelectorAll("table")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
  }

  for (const box of document.querySelectorAll("[data-find]")) {
    const rows = Array.from(box.querySelectorAll("tbody tr"));
    const label = document.createElement("label");
    const input = document.createElement("input");
    const found = document.createElement("output");
    label.className = "find";
    input.type = "search";
    label.append(box.dataset.find, input, found);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      const left = rows.filter((row) => !row.hidden).length;
      found.textContent = wanted ? `${left} of ${rows.length}` : "";
    });
    box.before(label);
  }

  // Paper shows everything: rows searched away come back, and what is folded opens.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = Array.from(document.querySelectorAll("details:not([open])"));
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
})();
