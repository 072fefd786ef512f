// Draws the timeline and filters; everything else on the page works without it.
// Only what is in view is drawn, so thousands of volumes cost no more than those that fit the window.
"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($("data").textContent);

  // Formats microseconds with three digits and a unit.
  const human = us => {
    const [value, unit] = us < 1e3 ? [us, "µs"] : us < 1e6 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
    return (us < 1e3 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)) + " " + unit;
  };

  // ---- Cases ----
  const tools = $("case-tools");
  if (tools) {
    tools.hidden = false;
    const cases = [...document.querySelectorAll(".case")];
    const filter = () => {
      const words = $("case-find").value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = new Set([...tools.querySelectorAll("input[name=result]:checked")].map(box => box.value));
      let found = 0;
      for (const one of cases) {
        const suite = one.closest(".suite").querySelector("strong").textContent;
        const text = (suite + " " + one.textContent).toLowerCase();
        one.hidden = !shown.has(one.dataset.result) || !words.every(word => text.includes(word));
        found += !one.hidden;
      }
      for (const suite of document.querySelectorAll(".suite")) {
        suite.hidden = !suite.querySelector(".case:not([hidden])");
        if (words.length) suite.open = true;
      }
      $("case-found").value = `${found} of ${cases.length}`;
    };
    tools.addEventListener("input", filter);
    filter();
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));

  // ---- Timeline ----
  if (!$("lives") || !data.rows.length) return;
  $("lives").hidden = false;
  const canvas = $("canvas"), frame = $("frame"), overview = $("overview"), tip = $("tip");
  const pen = canvas.getContext("2d"), strip = overview.getContext("2d");
  const ROW = 20, BAR = 14, AXIS = 22;
  const most = (list, of) => list.reduce((top, one) => Math.max(top, of(one)), 0);
  const end = row => Math.max(most(row.bars, bar => bar[1] + (bar[2] ?? 0)), most(row.calls, call => call[1] + call[2]));
  const begin = row => Math.min(row.bars[0]?.[1] ?? Infinity, row.calls[0]?.[1] ?? Infinity);
  const clock = Math.max(1, most(data.rows, end)), longest = Math.max(1, most(data.rows, row => end(row) - begin(row)));
  // With aligned start times, the axis is as long as the longest volume.
  let last = clock, aligned = false;
  const origin = row => aligned ? begin(row) : 0;
  const view = { from: 0, to: last, hidden: new Set(), rows: data.rows.map((_, i) => i), chosen: -1 };
  const used = [...new Set(data.rows.flatMap(row => row.bars.map(bar => bar[0])))].sort((a, b) => a - b);

  const text = data.rows.map(row => [row.name, row.volume, row.handle, data.cases[row.case] ?? "", data.classes[row.class],
    ...new Set([...row.bars, ...row.calls].map(one => data.nodes[one[4]] ?? ""))].join(" ").toLowerCase());
  const failed = call => data.codes[call[3]] !== "OK";

  let colours = {};
  const paint = () => {
    const style = getComputedStyle(document.documentElement);
    const of = name => style.getPropertyValue("--" + name).trim();
    colours = { ink: of("ink"), dim: of("dim"), line: of("line"), soft: of("soft"), card: of("card"), bad: of("bad"), focus: of("focus") };
    colours.phases = data.phases.map(name => of(name) || of("other"));
    for (const button of $("key").children) button.style.borderLeft = `.7rem solid ${colours.phases[button.value]}`;
  };

  const labels = () => Math.min(230, canvas.clientWidth * 0.28);
  const x = us => labels() + (us - view.from) / (view.to - view.from) * (canvas.clientWidth - labels());
  const us = px => view.from + (px - labels()) / (canvas.clientWidth - labels()) * (view.to - view.from);

  const size = (element, context) => {
    const ratio = devicePixelRatio || 1, width = element.clientWidth, height = element.clientHeight;
    if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return [width, height];
  };

  const step = span => {
    const rough = span / Math.max(2, (canvas.clientWidth - labels()) / 110), power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map(one => one * power).find(one => one >= rough);
  };

  // The end of a name is more specific than its beginning, so the beginning is truncated.
  const fitting = (name, width) => {
    const over = pen.measureText(name).width / width;
    return over <= 1 ? name : "…" + name.slice(Math.ceil(name.length * (1 - 1 / over)) + 2);
  };

  const draw = () => {
    canvas.style.height = frame.clientHeight + "px";
    $("space").style.height = AXIS + view.rows.length * ROW + "px";
    const [width, height] = size(canvas, pen);
    const left = labels(), first = Math.floor(frame.scrollTop / ROW);
    const until = Math.min(view.rows.length, first + Math.ceil(height / ROW) + 1);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const every = step(view.to - view.from);
    pen.fillStyle = colours.line;
    for (let t = Math.ceil(view.from / every) * every; t <= view.to; t += every) pen.fillRect(Math.round(x(t)), AXIS, 1, height);
    for (let i = first; i < until; i++) {
      const row = data.rows[view.rows[i]], zero = origin(row), top = AXIS + i * ROW - frame.scrollTop, middle = top + ROW / 2;
      if (view.rows[i] === view.chosen) {
        pen.fillStyle = colours.soft;
        pen.fillRect(0, top, width, ROW);
        pen.fillStyle = colours.focus;
        pen.fillRect(0, top, 3, ROW);
      }
      pen.save();
      pen.beginPath();
      pen.rect(left, AXIS, width - left, height);
      pen.clip();
      for (const [phase, start, length, driver] of row.bars) {
        if (view.hidden.has(phase)) continue;
        const from = x(start - zero), to = length === null ? width : x(start - zero + length);
        if (to < left || from > width) continue;
        pen.fillStyle = colours.phases[phase];
        pen.globalAlpha = length === null ? 0.15 : 0.55;
        pen.fillRect(from, middle - BAR / 2, Math.max(1, to - from), BAR);
        pen.globalAlpha = 1;
        if (length === null) pen.fillRect(from, middle - BAR / 2, 2, BAR);
        else if (driver) pen.fillRect(from, middle + BAR / 2 - 3, Math.max(1, (to - from) * driver / Math.max(1, length)), 3);
      }
      for (const call of row.calls) {
        const from = x(call[1] - zero), to = x(call[1] - zero + call[2]);
        if (to < left || from > width) continue;
        pen.fillStyle = failed(call) ? colours.bad : colours.ink;
        pen.globalAlpha = failed(call) ? 1 : 0.6;
        pen.fillRect(from, middle - (failed(call) ? BAR / 2 + 1 : 2), Math.max(1, to - from), failed(call) ? BAR + 2 : 4);
      }
      pen.globalAlpha = 1;
      pen.restore();
      pen.save();
      pen.beginPath();
      pen.rect(0, AXIS, left - 8, height);
      pen.clip();
      pen.fillStyle = row.calls.some(failed) ? colours.bad : colours.ink;
      pen.fillText(fitting(row.name, left - 16), 8, middle);
      pen.restore();
    }
    pen.fillStyle = colours.card;
    pen.fillRect(0, 0, width, AXIS);
    pen.fillStyle = colours.line;
    pen.fillRect(0, AXIS - 1, width, 1);
    pen.fillStyle = colours.dim;
    pen.fillText("volume", 8, AXIS / 2);
    for (let t = Math.ceil(view.from / every) * every; t <= view.to; t += every) pen.fillText(t === 0 ? "0" : human(Math.round(t)), x(t) + 4, AXIS / 2);
    drawStrip();
  };

  // The number of existing volumes over time, and the range shown below.
  let alive = null;
  const drawStrip = () => {
    const [width, height] = size(overview, strip);
    if (!alive) {
      alive = new Uint32Array(240);
      for (const row of data.rows) {
        const zero = origin(row), place = time => Math.floor((time - zero) / last * 239);
        for (let i = place(begin(row)); i <= place(end(row)); i++) alive[i]++;
      }
    }
    const top = Math.max(1, ...alive);
    strip.fillStyle = colours.dim;
    strip.globalAlpha = 0.5;
    alive.forEach((count, i) => strip.fillRect(i / 240 * width, height - count / top * (height - 6), width / 240 + 0.5, height));
    strip.globalAlpha = 0.18;
    strip.fillStyle = colours.focus;
    const from = view.from / last * width, to = view.to / last * width;
    strip.fillRect(from, 0, Math.max(3, to - from), height);
    strip.globalAlpha = 1;
    strip.fillRect(from, 0, 2, height);
    strip.fillRect(Math.max(from, to - 2), 0, 2, height);
  };

  let due = 0;
  const redraw = () => { due ||= requestAnimationFrame(() => { due = 0; draw(); }); };
  const look = (from, to) => {
    const span = Math.min(last, Math.max(50, to - from));
    view.from = Math.min(Math.max(0, from), last - span);
    view.to = view.from + span;
    redraw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) => look(at - (at - view.from) * factor, at + (view.to - at) * factor);

  // ---- Filter and order of rows ----
  const total = row => row.bars.reduce((sum, bar) => sum + (bar[2] ?? 0), 0);
  const inPhase = (row, phase) => Math.max(-1, ...row.bars.filter(bar => bar[0] === phase).map(bar => bar[2] ?? Infinity));
  const arrange = () => {
    const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean), order = $("order").value;
    $("which").hidden = order !== "phase";
    const phase = Number($("phase").value);
    const value = { begin: () => 0, long: total, phase: row => inPhase(row, phase), error: row => row.calls.filter(failed).length }[order];
    view.rows = data.rows.map((_, i) => i).filter(i => words.every(word => text[i].includes(word)));
    const values = data.rows.map(value);
    view.rows.sort((a, b) => values[b] - values[a] || a - b);
    if (!view.rows.includes(view.chosen)) choose(-1);
    $("found").value = view.rows.length === data.rows.length ? `${data.rows.length} volumes` : `${view.rows.length} of ${data.rows.length} volumes`;
    frame.scrollTop = 0;
    redraw();
  };

  for (const phase of used) {
    $("phase").add(new Option(data.phases[phase], phase));
    const button = Object.assign(document.createElement("button"), { type: "button", value: phase, textContent: data.phases[phase] });
    button.setAttribute("aria-pressed", "true");
    button.onclick = () => {
      const shown = view.hidden.delete(phase);
      if (!shown) view.hidden.add(phase);
      button.setAttribute("aria-pressed", String(shown));
      redraw();
    };
    $("key").append(button);
  }

  // ---- Details of one volume ----
  const cell = (row, tag, words, number) => {
    const element = row.appendChild(document.createElement(tag));
    element.textContent = words;
    if (number) element.className = "num";
  };
  const choose = number => {
    view.chosen = number;
    const detail = $("detail");
    detail.replaceChildren();
    if (number < 0) return redraw();
    const row = data.rows[number];
    const head = detail.appendChild(document.createElement("h3"));
    head.textContent = row.name;
    const about = detail.appendChild(document.createElement("p"));
    about.className = "dim";
    about.textContent = [row.volume && `volume ${row.volume}`, row.handle && `handle ${row.handle}`, data.classes[row.class] && `class ${data.classes[row.class]}`, data.cases[row.case]].filter(Boolean).join(" · ");
    const scroll = detail.appendChild(document.createElement("div"));
    scroll.className = "scroll";
    const table = scroll.appendChild(document.createElement("table"));
    const titles = table.createTHead().insertRow();
    ["", "began", "took", "driver", "node", "result"].forEach((title, i) => cell(titles, "th", title, i > 0 && i < 4));
    const body = table.createTBody();
    const lines = [
      ...row.bars.map(([phase, start, length, driver, node]) => [start, data.phases[phase], length, driver, node, length === null ? "never ended" : ""]),
      ...row.calls.map(([method, start, length, code, node]) => [start, "  " + data.methods[method], length, null, node, data.codes[code] || "no response"]),
    ].sort((a, b) => a[0] - b[0]);
    for (const [start, name, length, driver, node, result] of lines) {
      const line = body.insertRow();
      cell(line, "th", name);
      line.firstChild.style.whiteSpace = "pre";
      cell(line, "td", human(start), true);
      cell(line, "td", length === null ? "–" : human(length), true);
      cell(line, "td", driver ? human(driver) : "", true);
      cell(line, "td", data.nodes[node] ?? "");
      cell(line, "td", result);
    }
    redraw();
  };

  // ---- Pointer and keys ----
  const at = event => {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const place = Math.floor((py - AXIS + frame.scrollTop) / ROW);
    return { px, time: us(px), row: py < AXIS ? undefined : view.rows[place] };
  };
  const hover = event => {
    const { px, time, row } = at(event);
    const one = data.rows[row], near = (view.to - view.from) / canvas.clientWidth * 2;
    tip.hidden = true;
    if (!one) return;
    const zero = origin(one), inside = (start, length) => time >= start - zero - near && time <= start - zero + (length ?? last) + near;
    const lines = px < labels() ? [one.name, data.cases[one.case]] : [
      ...one.bars.filter(bar => !view.hidden.has(bar[0]) && inside(bar[1], bar[2])).map(([phase, , length, driver, node]) =>
        [data.phases[phase] + " " + (length === null ? "never ended" : human(length)), driver ? "driver " + human(driver) : "", data.nodes[node]].filter(Boolean).join(" · ")),
      ...one.calls.filter(call => inside(call[1], call[2])).map(call => `${data.methods[call[0]]} ${human(call[2])} ${data.codes[call[3]] || "no response"}`),
    ];
    tip.textContent = lines.filter(Boolean).join("\n");
    if (!tip.textContent) return;
    tip.hidden = false;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + "px";
  };
  const touches = new Map();
  let drag = null, pinch = null;
  canvas.addEventListener("pointerdown", event => {
    touches.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, from: view.from, to: view.to, moved: false };
    if (touches.size === 2) {
      const [a, b] = [...touches.values()];
      pinch = { gap: Math.max(10, Math.abs(a - b)), from: view.from, to: view.to };
    }
  });
  canvas.addEventListener("pointermove", event => {
    if (!touches.has(event.pointerId)) return hover(event);
    touches.set(event.pointerId, event.clientX);
    tip.hidden = true;
    if (pinch && touches.size === 2) {
      const [a, b] = [...touches.values()], factor = pinch.gap / Math.max(10, Math.abs(a - b)), middle = (pinch.from + pinch.to) / 2;
      look(middle - (middle - pinch.from) * factor, middle + (pinch.to - middle) * factor);
    } else if (drag && Math.abs(event.clientX - drag.x) > 3) {
      drag.moved = true;
      canvas.classList.add("moving");
      const by = (drag.x - event.clientX) / (canvas.clientWidth - labels()) * (drag.to - drag.from);
      look(drag.from + by, drag.to + by);
    }
  });
  const up = event => {
    const clicked = event.type === "pointerup" && drag && !drag.moved && !pinch;
    touches.delete(event.pointerId);
    canvas.classList.remove("moving");
    if (!touches.size) drag = pinch = null;
    if (clicked) choose(at(event).row ?? -1);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 300), at(event).time);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      const by = (event.deltaX || event.deltaY) / canvas.clientWidth * (view.to - view.from);
      look(view.from + by, view.to + by);
    }
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const span = view.to - view.from, place = view.rows.indexOf(view.chosen);
    const go = to => {
      const next = Math.min(view.rows.length - 1, Math.max(0, to));
      choose(view.rows[next] ?? -1);
      frame.scrollTop = Math.min(Math.max(frame.scrollTop, (next + 2) * ROW + AXIS - frame.clientHeight), next * ROW);
    };
    const keys = {
      ArrowDown: () => go(place + 1), ArrowUp: () => go(place - 1), PageDown: () => go(place + 20), PageUp: () => go(place - 20),
      Home: () => go(0), End: () => go(view.rows.length - 1),
      ArrowLeft: () => look(view.from - span / 8, view.to - span / 8), ArrowRight: () => look(view.from + span / 8, view.to + span / 8),
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: () => look(0, last), Escape: () => choose(-1),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  let brush = null;
  const along = event => (event.clientX - overview.getBoundingClientRect().left) / overview.clientWidth * last;
  overview.addEventListener("pointerdown", event => { brush = along(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", event => { if (brush !== null) look(Math.min(brush, along(event)), Math.max(brush, along(event))); });
  overview.addEventListener("pointerup", event => {
    const span = view.to - view.from, middle = along(event);
    if (brush !== null && Math.abs(middle - brush) < last / 300) look(middle - span / 2, middle + span / 2);
    brush = null;
  });
  document.querySelector(".buttons").addEventListener("click", event => {
    ({ in: () => zoom(0.6), out: () => zoom(1 / 0.6), all: () => look(0, last) })[event.target.dataset.do]?.();
  });
  $("align").addEventListener("input", () => {
    aligned = $("align").checked;
    last = aligned ? longest : clock;
    alive = null;
    look(0, last);
  });
  const cases = new Set(data.cases);
  for (const button of document.querySelectorAll("button.volumes")) {
    button.hidden = !cases.has(button.dataset.case);
    button.onclick = () => {
      $("find").value = button.dataset.case;
      arrange();
      if (view.rows.length) look(Math.min(...view.rows.map(i => begin(data.rows[i]))), most(view.rows, i => end(data.rows[i])));
      $("timeline").scrollIntoView();
    };
  }
  for (const id of ["find", "order", "phase"]) $(id).addEventListener("input", arrange);
  frame.addEventListener("scroll", redraw);
  new ResizeObserver(redraw).observe(frame);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); redraw(); });
  paint();
  arrange();
})();
