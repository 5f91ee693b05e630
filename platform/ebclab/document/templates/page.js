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
    out.uirevision = 1; // what a reader has zoomed to stays when the figure is drawn again
    out.hoverlabel = { bgcolor: onDark ? "#2a323c" : "#ffffff", bordercolor: line, font: { color: ink } };
    out.modebar = { bgcolor: "rgba(0,0,0,0)", color: onDark ? "#6b7683" : "#a3abb5", activecolor: ink };
    return out;
  }

  const figures = [...document.querySelectorAll("script[data-for]")].map((script) => ({
    at: document.getElementById(script.dataset.for),
    figure: JSON.parse(script.textContent),
  }));

  // On paper a figure is as wide as an A4 page between its margins, whatever the width of the window was; two of a grid
  // lie side by side.
  const paper = { width: 690, gap: 22, shorter: 0.82 };

  // Lines of a title that fit so many pixels, broken at spaces and after underscores.
  function inLines(text, pixels, fontSize) {
    const lines = [""];
    for (const word of text.split(/(?<=[ _])/)) {
      if (lines.at(-1) && (lines.at(-1) + word).trimEnd().length * 0.58 * fontSize > pixels) lines.push("");
      lines[lines.length - 1] += word;
    }
    return lines.map((line) => line.trimEnd());
  }

  // A layout whose titles of axes and panels stay within their panels, with as many ticks as there is room for.
  function fitted(layout, pixels, legendHeight) {
    const out = { ...layout, margin: { ...layout.margin } };
    const panels = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
    const width = (key) => { const [from, to] = layout[key].domain ?? [0, 1]; return pixels * (to - from); };
    const beside = panels.length === 1 ? 2 * (layout.margin.r ?? 0) : 0; // a title may reach over the right margin
    for (const key of panels) {
      const { title } = layout[key];
      out[key] = { ...layout[key] };
      if (panels.length > 1 && width(key) < 240) out[key].nticks = Math.max(2, Math.floor(width(key) / 32));
      if (panels.length > 1 && width(key) < 90) out[key].tickangle = 90; // ticks of a logarithmic axis have no room side by side
      if (title?.text) {
        const lines = inLines(title.text, width(key) + beside, 14);
        const size = Math.max(8, (width(key) + beside) / (0.58 * Math.max(...lines.map((line) => line.length))));
        out[key].title = { ...title, text: lines.join("<br>"), ...(size < 14 && { font: { ...title.font, size } }) };
      }
    }
    // numbers beside the axes of one panel, as large as their distance lets them be
    const numbers = layout.annotations?.filter((each) => each.xref !== "paper") ?? [];
    const distance = pixels / new Set(numbers.map((each) => each.x)).size;
    const size = Math.min(11, Math.max(8, distance / (0.62 * Math.max(...numbers.map((each) => each.text.length)))));
    let most = 1;
    out.annotations = layout.annotations?.map((each) => {
      const over = panels.filter((key) => layout[key].domain && layout[key].domain[0] <= each.x && each.x <= layout[key].domain[1]);
      if (each.xref !== "paper" || each.xanchor !== "center" || !over.length) {
        return pixels < 320 ? { ...each, font: { ...each.font, size } } : each;
      }
      const lines = inLines(each.text, width(over[0]), each.font?.size ?? 16);
      most = Math.max(most, lines.length);
      return { ...each, text: lines.join("<br>") };
    });
    if (out.margin.t) out.margin.t += 15 * (most - 1);
    if (layout.legend?.yref === "container") out.margin.t = Math.max(out.margin.t, legendHeight + 15 * most + 20);
    return out;
  }

  // A layout whose names of rows take at most a third of a narrow figure, in as many lines as they need, for which it grows.
  function inThird(layout, at) {
    const rows = at._fullLayout.yaxis?.type === "category" ? at._fullLayout.yaxis._categories : [];
    if (!rows.length || at.clientWidth > 560) return layout;
    const ticktext = rows.map((name) => inLines(String(name), at.clientWidth / 3, 12).join("<br>"));
    const lines = Math.max(...ticktext.map((name) => name.split("<br>").length));
    const missing = lines > 1 && at._fullLayout.autosize ? Math.max(0, rows.length * (15 * lines + 4) - at._fullLayout._size.h) : 0;
    const height = at._fullLayout.height + missing;
    at.style.height = `${height}px`;
    return { ...layout, height, yaxis: { ...layout.yaxis, tickvals: rows, ticktext } };
  }

  function save(text, name, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // A file name from the heading of a table or a figure.
  function fileName(block, ending) {
    const words = (block.querySelector("h3") ?? document.querySelector("h1")).textContent.toLowerCase();
    return `${words.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "ebclab"}.${ending}`;
  }

  // The numbers of a figure: a row for each point, with the name of its curve; text that a spreadsheet would compute
  // follows an apostrophe.
  function figureAsCsv(figure) {
    const parts = ["x", "y", "text", "error_x.array", "error_x.arrayminus", "error_y.array", "error_y.arrayminus"];
    const at = (trace, part) => part.split(".").reduce((inner, key) => inner?.[key], trace);
    const rows = [["curve", ...parts, "value"]];
    for (const trace of figure.data) {
      const name = trace.name ?? "";
      if (Array.isArray(trace.z)) {
        trace.z.forEach((line, j) => line.forEach((value, i) => {
          rows.push([name, trace.x?.[i] ?? i, trace.y?.[j] ?? j, ...parts.slice(2).map(() => ""), value]);
        }));
      } else {
        const columns = parts.map((part) => [at(trace, part)].flat());
        const length = Math.max(columns[0].length, columns[1].length);
        for (let i = 0; i < length; i += 1) rows.push([name, ...columns.map((column) => column[i] ?? ""), ""]);
      }
      for (const { label, values } of trace.dimensions ?? []) {
        values.forEach((value, i) => rows.push([label, i, value, ...parts.slice(2).map(() => ""), ""]));
      }
    }
    const used = rows[0].map((_, column) => rows.slice(1).some((row) => row[column] !== "" && row[column] !== null));
    const cell = (value) => {
      const text = typeof value === "string" && /^[\s'"]*[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value))
        ? `'${value}` : String(value ?? "");
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.filter((_, column) => used[column]).map(cell).join(",") + "\n").join("");
  }

  const ofFigure = (at) => figures.find((each) => each.at === at);
  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover", showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    modeBarButtonsToAdd: figures.length === 0 ? [] : [
      {
        name: "picture", title: "Download as SVG, for print", icon: Plotly.Icons.camera,
        click: async (at) => {
          const { data, layout } = ofFigure(at).figure;
          const size = { width: paper.width, height: at.dataset.height * paper.shorter };
          const svg = await Plotly.toImage({ data, layout: { ...themed(layout, false), ...size } }, { format: "svg", ...size });
          save(decodeURIComponent(svg.replace(/^data:image\/svg\+xml,/, "")), fileName(at.closest("figure"), "svg"), "image/svg+xml");
        },
      },
      {
        name: "numbers", title: "Download the numbers as CSV", icon: Plotly.Icons.disk,
        click: (at) => save(figureAsCsv(ofFigure(at).figure), fileName(at.closest("figure"), "csv"), "text/csv"),
      },
    ],
  };

  // A table as LaTeX with the rules of booktabs; rows that are filtered away are left out.
  function tableAsLatex(table) {
    const names = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "−": "$-$", "×": "$\\times$", "<": "$<$", ">": "$>$" };
    const minus = (text) => text.replace(/(^|[\s(])-(?=\d)/g, "$1−");
    const escaped = (text) => minus(text).replace(/[\\~^±−×<>&%$#_{}]/g, (sign) => names[sign] ?? `\\${sign}`);
    const text = (cell) => escaped([...cell.childNodes].map((node) => node.textContent.trim()).filter(Boolean).join(" "));
    const line = (row) => {
      const cells = [...row.cells].map((cell) => (cell.colSpan > 1 ? `\\multicolumn{${cell.colSpan}}{c}{${text(cell)}}` : text(cell)));
      const joined = `${cells.join(" & ")} \\\\`;
      return /^[[*]/.test(joined) ? `{}${joined}` : joined; // else an option of the command before it
    };
    const heads = [...table.tHead.rows];
    const align = [...heads.at(-1).cells].map((cell) => (cell.classList.contains("number") ? "r" : "l")).join("");
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const lines = [...heads.map(line), "\\midrule", ...rows.map(line)];
    return ["% needs \\usepackage{booktabs}", `\\begin{tabular}{${align}}`, "\\toprule", ...lines, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  }

  for (const button of document.querySelectorAll("button[data-latex]")) {
    const table = document.getElementById(button.dataset.latex);
    button.addEventListener("click", () => save(tableAsLatex(table), fileName(button.closest(".made"), "tex"), "text/x-tex"));
  }

  function drawAll(onDark, onPaper = false) {
    return Promise.all(figures.map(({ at, figure }) => {
      at.dataset.height ??= parseFloat(at.style.height);
      const height = at.dataset.height * (onPaper ? paper.shorter : 1);
      at.style.height = `${height}px`;
      const layout = themed(figure.layout, onDark);
      const width = at.closest(".grid") ? (paper.width - paper.gap) / 2 : paper.width;
      const size = onPaper ? { width, height, autosize: false } : { autosize: true };
      const first = Plotly.react(at, figure.data, { ...layout, ...size }, config);
      const named = inThird(layout, at);
      const drawn = named === layout ? first : Plotly.react(at, figure.data, { ...named, ...size }, config);
      const legendHeight = at.querySelector(".legend")?.getBoundingClientRect().height ?? 0;
      const fit = fitted(named, at._fullLayout._size.w, legendHeight); // what labels leave of the width
      const isSame = JSON.stringify(fit) === JSON.stringify(named);
      return isSame ? drawn : Plotly.react(at, figure.data, { ...fit, ...size }, config);
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

  // A watched page loads itself again when its server has a newer one, and says when there is no server any more.
  const { version, look } = document.documentElement.dataset;
  const brand = document.querySelector(".brand");
  const watched = brand.textContent;
  if (version) {
    setInterval(async () => {
      const newest = await fetch(location.href, { method: "HEAD", cache: "no-store" }).catch(() => null);
      if (newest?.ok && newest.headers.get("ETag") !== `"${version}"`) location.reload();
      brand.textContent = newest?.ok ? watched : `${watched} · no longer watched`;
    }, look * 1000);
  }

  drawAll(dark.matches).then(() => { document.documentElement.dataset.drawn = String(figures.length); });
  dark.addEventListener("change", () => drawAll(dark.matches));
  window.addEventListener("beforeprint", () => drawAll(false, true));
  window.addEventListener("afterprint", () => drawAll(dark.matches));

  // Titles are broken anew for another width; a phone's window changes its height alone while one scrolls.
  let drawnFor = window.innerWidth, waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (window.innerWidth !== drawnFor) drawAll(dark.matches);
      drawnFor = window.innerWidth;
    }, 200);
  });
})();
