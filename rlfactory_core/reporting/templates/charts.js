// The values under the pointer, for every chart of the page, also for one that came later.
let shown = null;
function hideTip() {
  if (shown) { shown.nextElementSibling.hidden = true; shown.querySelector(".rule").setAttribute("visibility", "hidden"); }
  shown = null;
}
document.addEventListener("pointermove", event => {
  const svg = event.target.closest("svg[data-lines]");
  if (svg !== shown) hideTip();
  if (!svg) return;
  shown = svg;
  const lines = JSON.parse(svg.dataset.lines), rule = svg.querySelector(".rule"), tip = svg.nextElementSibling;
  const width = svg.viewBox.baseVal.width, box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
  const at = lines.flatMap(line => line.points).reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  rule.setAttribute("x1", at[0]); rule.setAttribute("x2", at[0]); rule.setAttribute("visibility", "visible");
  tip.replaceChildren(`step ${at[2]}`, ...lines.flatMap(line => {
    const point = line.points.find(p => p[2] === at[2]);
    if (!point) return [];
    const row = document.createElement("div"), value = document.createElement("b");
    value.textContent = point[3]; row.append(`${line.label} `, value);
    return [row];
  }));
  tip.hidden = false;
  const left = at[0] / width * box.width;
  tip.style.left = left > box.width / 2 ? `${left - tip.offsetWidth - 12}px` : `${left + 12}px`;
});
