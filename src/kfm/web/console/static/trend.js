// Draws the durations of runs from the rows of their table, which stays the page's own. Only pages with a
// chart load it, beside uPlot.
"use strict";
(() => {
  const place = document.getElementById("chart");
  const table = place && document.getElementById(place.dataset.rows);
  if (!table || typeof uPlot === "undefined") return;
  const rows = [...table.tBodies[0].rows]
    .map((row) => ({ at: row.dataset.at / 1000, took: row.dataset.took / 1000, bad: row.dataset.tone !== "good" && row.dataset.tone !== "quiet" }))
    .sort((one, other) => one.at - other.at);
  if (rows.length < 2) return;
  const data = [
    rows.map((row) => row.at),
    rows.map((row) => (row.bad ? null : row.took)),
    rows.map((row) => (row.bad ? row.took : null)),
  ];
  const kept = (() => { try { return localStorage.getItem("kfm.zone"); } catch { return null; } })();
  const seconds = (value) => (value === null || value === undefined ? "–"
    : value >= 60 ? `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`
      : value >= 1 ? `${+value.toFixed(1)} s` : `${Math.round(value * 1000)} ms`);
  const pad = (number) => String(number).padStart(2, "0");
  const placed = (at) => (kept === "local" ? new Date(at * 1000) : uPlot.tzDate(new Date(at * 1000), "Etc/UTC"));
  const clock = (at, step) => {
    const day = placed(at);
    return step >= 86_400 ? `${pad(day.getMonth() + 1)}-${pad(day.getDate())}` : `${pad(day.getHours())}:${pad(day.getMinutes())}`;
  };
  let chart = null;

  function draw() {
    const look = getComputedStyle(document.documentElement);
    const colour = (name) => look.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const dots = (name, size) => ({ stroke: colour(name), width: 1.5, points: { show: true, size, stroke: colour(name), fill: colour(name) } });
    chart?.destroy();
    chart = new uPlot({
      width: place.clientWidth,
      height: 260,
      tzDate: placed,
      scales: { y: { range: (_chart, _low, high) => [0, (high || 1) * 1.1] } },
      axes: [{ ...axis, values: (_chart, ticks, _axis, _space, step) => ticks.map((at) => clock(at, step)) }, { ...axis, size: 72, values: (_chart, ticks) => ticks.map(seconds) }],
      series: [
        { label: kept === "local" ? "Started" : "Started (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
        { label: "succeeded", ...dots("--good", 4), spanGaps: true, value: (_chart, value) => seconds(value) },
        { label: "failed or refused", ...dots("--bad", 7), paths: () => null, value: (_chart, value) => seconds(value) },
      ],
    }, data, place);
  }

  place.hidden = false;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", "How long each run took; the table below has the same content.");
  draw();
  table.closest("details").open = false;
  new ResizeObserver(() => { if (place.clientWidth) chart.setSize({ width: place.clientWidth, height: 260 }); }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
