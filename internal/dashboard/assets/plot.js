// Plots of figures over time.
import {bytes, number} from './shared.js';

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const labels = {
	requests: 'all', refused: 'refused', limited: '429', failed: 'failed', published: 'published', delivered: 'delivered', received: 'in',
	sent: 'out', subscribers: 'open', sync_median: 'median', sync_slow: '99 in 100', disk_used: 'used', batches: 'batches', bytes: 'bytes',
};
const units = {
	bytes: v => bytes(v), ms: v => v.toFixed(v < 10 ? 1 : 0) + ' ms',
	plain: v => Math.abs(v) < 100 && !Number.isInteger(v) ? v.toFixed(1) : number(Math.round(v)),
};
const drawn = [];

// draw makes a plot in an element: its data-plot names the columns. update(columns) shows other ones.
export const draw = element => {
	const names = element.dataset.plot.split(',');
	const unit = units[element.dataset.unit] ?? units.plain;
	let plot, last;
	const make = () => {
		const axis = {stroke: css('--soft'), grid: {stroke: css('--line'), width: 1}, ticks: {stroke: css('--line'), width: 1}, font: '11px system-ui'};
		plot?.destroy();
		plot = new uPlot({
			width: element.clientWidth, height: 190, cursor: {y: false}, legend: {live: true},
			scales: {y: {range: (u, min, max) => [0, Math.max(max ?? 0, unit === units.bytes ? 1024 : 1) * 1.05]}},
			axes: [axis, {...axis, size: 64, values: (u, ticks) => ticks.map(unit)}],
			series: [{value: (u, v) => v == null ? '' : new Date(v * 1000).toLocaleTimeString()}, ...names.map((name, i) => ({
				label: labels[name] ?? name, stroke: css('--p' + (i + 1)), width: 1.5, points: {show: false}, value: (u, v) => v == null ? '' : unit(v),
			}))],
		}, last ?? [[], ...names.map(() => [])], element);
	};
	make();
	drawn.push({make, fit: () => plot.setSize({width: element.clientWidth, height: 190})});
	element.setAttribute('role', 'img');
	return columns => {
		last = [columns.at, ...names.map(name => columns[name])];
		plot.setData(last);
		const now = names.map(name => (labels[name] ?? name) + ' ' + unit(columns[name].findLast(v => v != null) ?? 0)).join(', ');
		element.setAttribute('aria-label', 'Plot. Latest: ' + now);
	};
};

addEventListener('resize', () => { for (const d of drawn) d.fit(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { for (const d of drawn) d.make(); });
