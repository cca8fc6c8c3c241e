// Draws the charts: gives ECharts the options in the page's own colours, of the recent time or of the whole range.
(() => {
  "use strict";
  const charts = [...document.querySelectorAll(".canvas")].map((place) => {
    const options = JSON.parse(place.dataset.options);
    return { place, options, whole: place.dataset.whole ? JSON.parse(place.dataset.whole) : options };
  });
  const buttons = [...document.querySelectorAll(".range")];
  const root = document.documentElement;
  const contrast = matchMedia("(prefers-contrast: more)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let drawn = [];
  let whole = false;

  const digits = (value) => {
    if (value === 0) return "0";
    const magnitude = Math.abs(value);
    if (magnitude >= 1e15 || magnitude < 1e-4) return value.toExponential(2);
    const decimals = Math.max(0, 2 - Math.floor(Math.log10(magnitude)));
    const shown = value.toFixed(Math.min(decimals, 20));
    const [whole, part = ""] = shown.split(".");
    const fraction = part.replace(/0+$/, "");
    return whole.replace(/\B(?=(\d{3})+$)/g, " ") + (fraction ? "." + fraction : "");
  };
  const scaled = (scale) => (value) => {
    if (value === 0) return "0";
    const [factor, name] = scale.find(([least]) => Math.abs(value) >= least * 0.9995) || scale[scale.length - 1];
    return `${digits(value / factor)} ${name}`;
  };
  const short = scaled([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
  // As units.py writes them.
  const formats = {
    time: (value) => {
      if (Math.abs(value) >= 7200) return `${digits(value / 3600)} h`;
      return Math.abs(value) >= 120 ? `${digits(value / 60)} min` : short(value);
    },
    bytes: scaled([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]),
    throughput: scaled([[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]]),
    ratio: (value) => `${digits(value * 100)} %`,
    rate: (value) => (value === 0 || Math.abs(value) >= 0.1 ? `${digits(value)}/s` : `${digits(value * 60)}/min`),
    count: digits,
    points: (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + digits(Math.abs(value)),
  };
  // ECharts passes a bare value, a point of a line, or a description of a bar.
  const formatter = (name) => (given) => {
    let value = given;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) value = value.value;
    if (Array.isArray(value)) value = value[1];
    return typeof value === "number" ? (formats[name] || formats.count)(value) : "not measured";
  };

  const token = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const resolve = (value, key, width) => {
    if (Array.isArray(value)) return value.map((one) => resolve(one, "", width));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolve(one, name, width)]));
    }
    if (typeof value !== "string" || !value.startsWith("@")) return value;
    if (key === "color") return token(value.slice(1));
    if (key === "formatter" || key === "valueFormatter") return formatter(value.slice(1));
    if (key === "width") return width - 72;
    return value;
  };

  const theme = () => {
    const [ink, quiet, line, card] = ["ink", "quiet", "line", "card"].map(token);
    const axis = {
      axisLine: { lineStyle: { color: line } },
      axisTick: { lineStyle: { color: line } },
      axisLabel: { color: quiet },
      nameTextStyle: { color: quiet },
      splitLine: { lineStyle: { color: line } },
    };
    return {
      color: [1, 2, 3, 4, 5, 6].map((place) => token(`series${place}`)),
      backgroundColor: "transparent",
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: ink },
      legend: { textStyle: { color: ink } },
      tooltip: { backgroundColor: card, borderColor: line, borderWidth: 1, textStyle: { color: ink } },
      timeAxis: axis,
      valueAxis: axis,
      categoryAxis: axis,
    };
  };

  const draw = (width) => {
    drawn.forEach((chart) => chart.dispose());
    const colours = theme();
    drawn = charts.map((one) => {
      const place = one.place;
      const rows = Number(place.dataset.rows);
      const wide = Math.floor(Math.min(place.clientWidth || width, width));
      if (rows) place.style.height = `${rows * (wide < 560 ? 62 : 46) + 56}px`;
      const chart = echarts.init(place, colours, { renderer: "svg", width: wide });
      const made = resolve(whole ? one.whole : one.options, "", wide);
      // Patterns replace colours on paper and where more contrast is preferred.
      made.aria.decal = { show: root.classList.contains("print") || contrast.matches };
      chart.setOption(made);
      return chart;
    });
    root.dataset.drawn = String(drawn.length);
  };

  const again = () => draw(Infinity);
  let waiting = 0;
  let before = root.clientWidth;
  addEventListener("resize", () => {
    if (root.clientWidth === before || root.classList.contains("print")) return;
    before = root.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(again, 120);
  });
  for (const query of [dark, contrast]) {
    query.addEventListener("change", () => root.classList.contains("print") || again());
  }

  for (const button of buttons) {
    button.hidden = false;
    button.addEventListener("click", () => {
      whole = !whole;
      for (const one of buttons) one.textContent = whole ? "Show the recent part" : "Show the whole range";
      again();
    });
  }

  // On paper: light, and as wide as the sheet.
  addEventListener("beforeprint", () => {
    root.classList.add("print");
    draw(660);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("print");
    again();
  });
  again();
})();
