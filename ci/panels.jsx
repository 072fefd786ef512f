// Draws a dashboard with Grafana's published components: themes, panel frames, charts, tables, stats, gauges,
// transformations, units and legends are those of @grafana/ui and @grafana/data. The panels themselves are in no package;
// what they do with options is repeated here in short. The only chart that no package has is the bar chart.

// `require`, since the modules of @grafana/ui import packages without a default export as if they had one.
const {
  DataFrameType, EventBusSrv, FieldConfigOptionsRegistry, FieldType, LoadingState, ThemeContext, VizOrientation,
  applyFieldOverrides, createTheme, dateTime, getFieldDisplayName, getFieldDisplayValues, standardTransformers,
  standardTransformersRegistry, toDataFrame, transformDataFrame,
} = require("@grafana/data");
const { BarGauge, BigValue, GlobalStyles, PanelChrome, PanelContextProvider, Table, TimeSeries } = require("@grafana/ui");
const { createRoot } = require("react-dom/client");
const { firstValueFrom } = require("rxjs");
require("uplot/dist/uPlot.min.css");

const { dashboard, end, start, light } = window.DASHBOARD;
const theme = createTheme({ colors: { mode: light ? "light" : "dark" } });
const MINUTE = 60_000;
const base = Date.UTC(2026, 0, 5, 6);
const at = (minute) => base + minute * MINUTE;
const range = { from: dateTime(at(start)), to: dateTime(at(end)), raw: { from: "now-6h", to: "now" } };
const events = new EventBusSrv();

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((one) => ({
    id: one.id, transformation: one, name: one.name, description: one.description, editor: () => null,
  })));

// The options of fields that the dashboards set; Grafana registers them in its application.
const properties = ["unit", "decimals", "min", "max", "noValue", "displayName", "color", "thresholds", "mappings"].map((path) => ({
  id: path, path, name: path, isCustom: false,
  process: (value) => value, shouldApply: () => true, override: () => null, editor: () => null,
}));
const registry = new FieldConfigOptionsRegistry();
registry.setInit(() => properties);

// The frames of a target, as the Prometheus data source makes them.
function frames(target, several) {
  const series = target.series;
  if (target.format === "table") {
    if (series.length === 0) return [toDataFrame({ refId: target.refId, fields: [] })];
    const names = [...new Set(series.flatMap(([labels]) => Object.keys(labels)))].filter((name) => name !== "__name__").sort();
    const last = series.map(([labels, samples]) => [labels, samples.at(-1)[1]]);
    return [toDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, values: last.map(() => at(end)) },
        ...names.map((name) => ({ name, type: FieldType.string, values: last.map(([labels]) => labels[name] ?? "") })),
        { name: several ? `Value #${target.refId}` : "Value", type: FieldType.number, values: last.map(([, value]) => value) },
      ],
    })];
  }
  return series.map(([labels, samples]) => {
    const name = (target.legendFormat ?? "").replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? "")
      || JSON.stringify(labels);
    return toDataFrame({
      refId: target.refId,
      meta: { type: DataFrameType.TimeSeriesMulti },
      fields: [
        { name: "Time", type: FieldType.time, values: samples.map(([minute]) => at(minute)), config: { interval: MINUTE } },
        { name: "Value", type: FieldType.number, labels, values: samples.map(([, value]) => value),
          config: { displayNameFromDS: name } },
      ],
    });
  });
}

// What Grafana adds to a panel that sets neither: values above 80 are red.
const DEFAULTS = {
  thresholds: { mode: "absolute", steps: [{ value: -Infinity, color: "green" }, { value: 80, color: "red" }] },
  color: { mode: "thresholds" },
};

async function data(panel) {
  const targets = panel.targets.map((target) => ({ ...target, series: target.series.map(([labels, samples]) => [
    labels, samples.map(([minute, value]) => [minute, value === null ? Infinity : value])]) }));
  const raw = targets.flatMap((target) => frames(target, targets.length > 1)).filter((frame) => frame.fields.length > 0);
  const steps = panel.transformations ?? [];
  const transformed = steps.length && raw.length ? await firstValueFrom(transformDataFrame(steps, raw)) : raw;
  return applyFieldOverrides({
    data: transformed, fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry, theme, timeZone: "utc",
    replaceVariables: (text) => text,
  }).map((frame) => {
    for (const field of frame.fields) {
      const custom = panel.fieldConfig.defaults.custom ?? {};
      field.config.custom = { ...CUSTOM, ...custom, ...field.config.custom };
    }
    return frame;
  });
}

// The defaults of time series.
const CUSTOM = {
  drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", showPoints: "auto",
  pointSize: 5, spanNulls: false, stacking: { mode: "none", group: "A" }, axisPlacement: "auto", axisLabel: "",
  scaleDistribution: { type: "linear" }, hideFrom: { tooltip: false, viz: false, legend: false },
  thresholdsStyle: { mode: "off" }, axisCenteredZero: false, axisColorMode: "text", barAlignment: 0, insertNulls: false,
};

const empty = (panel, width, height) => (
  <div style={{ width, height, display: "flex", alignItems: "center", justifyContent: "center",
    color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>
);

function displayed(panel, frames) {
  return getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: (text) => text, theme,
    data: frames, timeZone: "utc", sparkline: false,
  });
}

function stat(panel, frames, width, height) {
  const [value] = displayed(panel, frames);
  return <BigValue value={value.display} width={width} height={height} theme={theme} {...panel.options} count={1} />;
}

function gauges(panel, frames, width, height) {
  const values = displayed(panel, frames);
  const each = Math.floor((height - 8 * (values.length - 1)) / values.length);
  const factors = { title: values.map((one) => one.display.title ?? "").reduce((a, b) => (a.length > b.length ? a : b), ""),
    text: values.map((one) => one.display.text).reduce((a, b) => (a.length > b.length ? a : b), "") };
  return values.map((one, nth) => (
    <div key={nth} style={{ height: each, marginBottom: 8 }}>
      <BarGauge value={one.display} field={one.field} display={one.view?.getFieldDisplayProcessor(one.colIndex)} width={width}
        height={each} orientation={VizOrientation.Horizontal} displayMode={panel.options.displayMode ?? "gradient"} theme={theme}
        itemSpacing={8} lcdCellWidth={12} showUnfilled={panel.options.showUnfilled ?? true} alignmentFactors={factors} isOverflow={false} />
    </div>
  ));
}

// Stacked horizontal bars: no package has this panel.
function bars(panel, frames, width, height) {
  const [frame] = frames;
  if (!frame || frame.length === 0) return empty(panel, width, height);
  const [name, ...values] = frame.fields.filter((field) => field.type === FieldType.string || field.type === FieldType.number);
  const totals = name.values.map((_, row) => values.reduce((sum, field) => sum + (field.values[row] ?? 0), 0));
  const top = Math.max(...totals, 0), each = Math.min(34, (height - 30) / name.values.length), left = 90, right = 70;
  const scale = (width - left - right) / (top || 1);
  const tint = (field) => theme.visualization.getColorByName(field.config.color?.fixedColor ?? "gray");
  return (
    <svg width={width} height={height} fontSize="12" fill={theme.colors.text.primary}>
      {name.values.map((label, row) => {
        let x = left;
        const y = row * each;
        return (
          <g key={row}>
            <text x={left - 8} y={y + each / 2 + 4} textAnchor="end">{label}</text>
            {values.map((field) => {
              const size = (field.values[row] ?? 0) * scale;
              x += size;
              return <rect key={field.name} x={x - size} y={y + each * 0.15} width={size} height={each * 0.7} fill={tint(field)} />;
            })}
            <text x={x + 6} y={y + each / 2 + 4}>{spelled(values[0], totals[row])}</text>
          </g>
        );
      })}
      {values.map((field, nth) => (
        <g key={field.name} transform={`translate(${(nth * width) / values.length}, ${height - 10})`}>
          <rect width="14" height="4" y="-6" fill={tint(field)} rx="2" />
          <text x="20" fontSize="11">{getFieldDisplayName(field, frame)}</text>
        </g>
      ))}
    </svg>
  );
}

function spelled(field, value) {
  const shown = field.display(value);
  return `${shown.prefix ?? ""}${shown.text}${shown.suffix ?? ""}`;
}

function drawn(panel, frames, width, height) {
  switch (panel.type) {
    case "stat":
      return stat(panel, frames, width, height);
    case "bargauge":
      return gauges(panel, frames, width, height);
    case "barchart":
      return bars(panel, frames, width, height);
    case "table":
      if (!frames[0] || frames[0].length === 0) return empty(panel, width, height);
      return <Table data={frames[0]} width={width} height={height} initialSortBy={panel.options.sortBy} timeRange={range} />;
    case "timeseries":
      if (frames.length === 0) return empty(panel, width, height);
      return <TimeSeries frames={frames} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
        legend={{ calcs: [], ...panel.options.legend }} options={panel.options} />;
    default:
      throw new Error(`${panel.title}: panels of type ${panel.type} are not drawn`);
  }
}

// Grafana's grid: 24 columns, rows of 30 pixels, 8 between them.
const WIDTH = 1600, ROW = 30, GAP = 8, COLUMN = (WIDTH - 2 * GAP + GAP) / 24;

function Panel({ panel, frames }) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * COLUMN - GAP, height = h * (ROW + GAP) - GAP;
  const context = { eventsScope: "global", eventBus: events, sync: () => 0, canAddAnnotations: () => false };
  return (
    <div style={{ position: "absolute", left: GAP + x * COLUMN, top: y * (ROW + GAP), width, height }}>
      <PanelContextProvider value={context}>
        <PanelChrome title={panel.title} width={width} height={height} loadingState={LoadingState.Done}>
          {(innerWidth, innerHeight) => drawn(panel, frames, innerWidth, innerHeight)}
        </PanelChrome>
      </PanelContextProvider>
    </div>
  );
}

async function main() {
  const panels = [];
  for (const panel of dashboard.panels) {
    panel.fieldConfig.defaults = { ...DEFAULTS, ...panel.fieldConfig.defaults };
    panels.push(<Panel key={panel.id} panel={panel} frames={await data(panel)} />);
  }
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas, width: WIDTH }}>
        <h3 style={{ padding: "14px 16px 10px", margin: 0, fontWeight: 500 }}>{dashboard.title}</h3>
        <div style={{ position: "relative", height: rows * (ROW + GAP) }}>{panels}</div>
      </div>
    </ThemeContext.Provider>,
  );
}
main().catch((error) => console.error("ci/panels failed", error.stack));
