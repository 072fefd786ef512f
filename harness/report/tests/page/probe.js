// Runs inside a copy of the page: uses it as people do, and leaves what it saw in the document.
"use strict";
(() => {
  const seen = { errors: window.probeErrors, requests: performance.getEntriesByType("resource").map(one => one.name) };
  const $ = id => document.getElementById(id);
  const canvas = $("canvas");
  const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  // Everything is drawn with rectangles: how many of them, and how it looks then.
  let drawn = 0;
  const fillRect = CanvasRenderingContext2D.prototype.fillRect;
  CanvasRenderingContext2D.prototype.fillRect = function (...args) { drawn += 1; return fillRect.apply(this, args); };
  const look = async act => {
    drawn = 0;
    act();
    await frame();
    return [canvas.toDataURL(), drawn];
  };
  const type = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("input", { bubbles: true })); };
  const key = name => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  const run = async () => {
    await frame();
    const [all, rectangles] = await look(() => key("0"));
    seen.rectangles = rectangles;
    const [zoomed] = await look(() => key("+"));
    const [moved] = await look(() => key("ArrowRight"));
    const [back] = await look(() => key("0"));
    seen.zoom = all !== zoomed && zoomed !== moved && all === back;
    const box = canvas.getBoundingClientRect();
    const [wheeled] = await look(() => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -400, ctrlKey: true, clientX: box.left + 400, clientY: box.top + 100, cancelable: true })));
    seen.wheel = wheeled !== all;
    await look(() => document.querySelector("[data-do=all]").click());
    const [without] = await look(() => $("key").firstChild.click());
    seen.hides = without !== all && $("key").firstChild.getAttribute("aria-pressed") === "false";
    $("key").firstChild.click();
    const [aligned] = await look(() => $("align").click());
    seen.aligns = aligned !== all;
    await look(() => $("align").click());
    await look(() => key("ArrowDown"));
    seen.chosen = $("detail").querySelector("h3").textContent;
    seen.lines = $("detail").querySelectorAll("tbody tr").length;
    type("find", "claim-1999");
    seen.found = $("found").value;
    type("find", "");
    type("order", "long");
    await look(() => key("Home"));
    seen.longest = $("detail").querySelector("h3").textContent;
    if ($("case-find")) {
      type("case-find", "mkfs");
      seen.cases = $("case-found").value;
      type("case-find", "");
    }
    seen.steps = document.querySelectorAll(".steps li.bad pre").length;
    document.querySelector("button.volumes:not([hidden])")?.click();
    seen.volumes = $("found").value;
    seen.evidence = [...document.querySelectorAll("#failures details.seen > summary")].map(one => one.textContent.trim());
    seen.findings = [...document.querySelectorAll("#failures article > h3")].map(one => one.textContent);
    seen.collapsed = [...document.querySelectorAll("#failures details.more:not([open]) > summary")].map(one => one.textContent.trim());
    document.querySelectorAll("#failures details").forEach(one => { one.open = true; });
    seen.inset = document.querySelector("main section").getBoundingClientRect().left > 0;
    seen.wider = document.documentElement.scrollWidth > innerWidth;
    // As narrow as phones are: a window of this browser is no narrower than 500.
    document.body.style.width = "360px";
    const inside = one => one.closest(".scroll, #frame, [hidden], .skip, details:not([open]) > :not(summary)");
    const overhangs = one => one.getClientRects().length && one.getBoundingClientRect().right > 361 && !inside(one);
    seen.overhang = innerWidth > 640 ? [] : [...document.body.querySelectorAll("*")].filter(overhangs).map(one => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`);
    document.body.style.width = "";
    seen.images = document.images.length;
    seen.headings = [...document.querySelectorAll("h1,h2")].map(one => one.textContent.trim());
    seen.unlabelled = [...document.querySelectorAll("input,select,button")].filter(one => !one.closest("label") && !one.textContent.trim() && !one.getAttribute("aria-label")).length;
    seen.dead = [...document.querySelectorAll("a[href^='#']")].filter(one => !document.querySelector(one.hash)).map(one => one.hash);
  };
  run().catch(error => seen.errors.push(String(error))).then(() => {
    const result = document.body.appendChild(document.createElement("pre"));
    result.id = "probe";
    result.textContent = JSON.stringify(seen);
  });
})();
