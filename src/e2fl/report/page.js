"use strict";
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const views = [];

  async function draw(place) {
    const still = [...place.childNodes];
    try {
      // The syntax tree of an expression is walked, never compiled: the page forbids eval.
      const result = await vegaEmbed(place, plots[place.id], {
        mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false,
        tooltip: { disableDefaultStyle: true },
      });
      views.push(result.view);
      place.dataset.drawn = "yes";
    } catch (error) {
      place.dataset.drawn = "failed";
      place.replaceChildren(...still);
      console.error(place.id, error);
    }
  }

  function pick() {
    const pressed = [...document.querySelectorAll('.legend button[aria-pressed="true"]')];
    const labels = pressed.map((button) => button.dataset.label);
    for (const view of views) view.signal("picked", labels).runAsync();
  }

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "true" ? "false" : "true");
      pick();
    });
  }

  // On paper every section and every table is open; a plot that was never seen is printed as its still picture.
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details.behind:not([open]), details.fold:not([open])")) { part.open = true; closed.push(part); }
  });
  addEventListener("afterprint", () => { for (const part of closed.splice(0)) part.open = false; });

  // A link into a folded section opens it.
  function unfold() {
    const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
    const inner = target.querySelector(":scope > details.fold");
    if (inner) inner.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);

  // A page that is still being written reloads itself, and stays where the reader was.
  const wait = Number(document.body.dataset.reload || 0);
  const key = "e2fl-place";
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) || "null");
    if (kept && kept.path === location.pathname) {
      for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
      addEventListener("load", () => scrollTo(0, kept.y));
    }
  } catch { /* a browser may forbid storage to pages from disk: then only the place is lost */ }
  if (wait) {
    setTimeout(() => {
      const open = [...document.querySelectorAll("details[open][id]")].map((part) => part.id);
      try { sessionStorage.setItem(key, JSON.stringify({ path: location.pathname, y: scrollY, open })); } catch { /* as above */ }
      location.reload();
    }, wait * 1000);
  }

  // A plot in a folded section has no width: it is drawn when the section is opened.
  const visible = (place) => !place.closest("details.fold:not([open])");
  const plots_in = (part) => [...part.querySelectorAll(".plot:not([data-drawn])")].filter(visible);
  for (const part of document.querySelectorAll("details.fold")) {
    part.addEventListener("toggle", () => { if (!matchMedia("print").matches && !closed.includes(part)) Promise.all(plots_in(part).map(draw)).then(pick); });
  }
  unfold();
  Promise.all(plots_in(document).map(draw)).then(() => {
    document.body.dataset.drawn = "yes";
  });
})();
