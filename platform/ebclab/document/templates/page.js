"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Colours of the page for a figure's fonts, axes and ground; print is always on white.
  function themed(layout, onDark) {
    const ink = onDark ? "#c9d1db" : "#2b323b";
    const line = onDark ? "#38414d" : "#dfe3e8";
    const out = { ...layout, font: { ...layout.font, color: ink, size: 12, family: "system-ui, sans-serif" } };
    for (const key of Object.keys(out).concat("xaxis", "yaxis")) {
      if (/^[xy]axis\d*$/.test(key)) {
        out[key] = { ...out[key], gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
        if (out[key].title) out[key].title = { ...out[key].title, standoff: 8 };
      }
    }
    out.hoverlabel = { bgcolor: onDark ? "#2a323c" : "#ffffff", bordercolor: line, font: { color: ink } };
    out.modebar = { bgcolor: "rgba(0,0,0,0)", color: onDark ? "#6b7683" : "#a3abb5", activecolor: ink };
    return out;
  }

  const figures = [...document.querySelectorAll("script[data-for]")].map((script) => ({
    at: document.getElementById(script.dataset.for),
    figure: JSON.parse(script.textContent),
  }));

  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
  };

  // On paper a figure is as wide as an A4 page between its margins, whatever the width of the window was.
  const paper = { width: 690, shorter: 0.82 };

  function drawAll(onDark, onPaper = false) {
    return Promise.all(figures.map(({ at, figure }) => {
      at.dataset.height ??= parseFloat(at.style.height);
      const height = at.dataset.height * (onPaper ? paper.shorter : 1);
      at.style.height = `${height}px`;
      const layout = themed(figure.layout, onDark);
      const size = onPaper ? { width: paper.width, height, autosize: false } : { autosize: true };
      return Plotly.react(at, figure.data, { ...layout, ...size }, config);
    }));
  }

  function sortBy(table, column, head) {
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.value ?? cell.textContent.trim();
      const number = text === "" ? NaN : Number(text);
      return { text, number };
    };
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, ...key(row) }));
    rows.sort((a, b) => {
      if ((a.text === "") !== (b.text === "")) return a.text === "" ? 1 : -1; // what is unknown stays last
      const both = !Number.isNaN(a.number) && !Number.isNaN(b.number);
      const order = both ? a.number - b.number : a.text.localeCompare(b.text);
      return descending ? -order : order;
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sortBy(table, column, head));
    });
  }

  for (const input of document.querySelectorAll("input[data-table]")) {
    const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
    const count = document.querySelector(`[data-count="${input.dataset.table}"]`);
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${rows.length} runs`;
    };
    input.addEventListener("input", filter);
    filter();
  }

  for (const button of document.querySelectorAll("button[data-run]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const { at, figure } of figures) {
        const traces = figure.data.flatMap((trace, place) => (String(trace.meta) === button.dataset.run ? [place] : []));
        if (traces.length) Plotly.restyle(at, { visible: shown }, traces);
      }
    });
  }

  drawAll(dark.matches).then(() => { document.documentElement.dataset.drawn = String(figures.length); });
  dark.addEventListener("change", () => drawAll(dark.matches));
  window.addEventListener("beforeprint", () => drawAll(false, true));
  window.addEventListener("afterprint", () => drawAll(dark.matches));
})();
