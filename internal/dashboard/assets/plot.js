// Time series plots, drawn with uPlot.
import {bytes, number} from './shared.js';

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const labels = {
	requests: 'all', refused: 'refused', limited: '429', failed: 'failed', published: 'published', delivered: 'delivered', received: 'in',
	sent: 'out', subscribers: 'open', sync_median: 'p50', sync_slow: 'p99', publish_median: 'p50', publish_slow: 'p99', delay_median: 'p50', delay_slow: 'p99', disk_used: 'used',
};
const units = {
	bytes: v => bytes(v), ms: v => (v < 10 ? Number(v.toPrecision(2)) : v.toFixed(0)) + ' ms',
	plain: v => Math.abs(v) < 100 && !Number.isInteger(v) ? String(Number(v.toPrecision(2))) : number(Math.round(v)),
};
const powers = [...Array(50).keys()].map(n => 2 ** n); // axis steps for bytes: KiB and MiB are powers of two
const clock = (t, second, timeZone) => new Date(t * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second, hour12: false, timeZone});
const drawn = [];

// short returns the index of the last value of each line that is less than 3 pixels long, such as a
// value with a gap on both sides. Such a line cannot be seen, so a point takes its place.
const short = (u, series) => {
	const values = u.data[series], x = i => u.valToPos(u.data[0][i], 'x'), points = [];
	for (let i = 0, first = 0; i < values.length; i++) {
		if (values[i] == null) first = i + 1;
		else if (values[i + 1] == null && x(i) - x(first) < 3) points.push(i);
	}
	return points;
};

// draw creates a plot inside an element whose data-plot attribute lists the columns to show. It
// returns a function that takes new columns and redraws the plot.
export const draw = element => {
	const names = element.dataset.plot.split(',');
	const unit = units[element.dataset.unit] ?? units.plain;
	const canvas = element.appendChild(document.createElement('div'));
	const legend = element.appendChild(document.createElement('ul'));
	legend.className = 'legend';
	const items = names.map(() => {
		const item = legend.appendChild(document.createElement('li'));
		item.append(document.createElement('i'), '');
		return item;
	});
	const caption = element.previousElementSibling, title = caption.textContent;
	const time = caption.appendChild(document.createElement('span'));
	let plot, range, last = [[], ...names.map(() => [])];

	// tell puts the values under the pointer into the legend, and their time into the caption. If the
	// pointer is not on a plot, it puts the latest values there.
	const tell = place => {
		const at = place ?? last[0].length - 1;
		items.forEach((item, i) => { item.lastChild.textContent = `${labels[names[i]] ?? names[i]} ${last[i + 1][at] == null ? '-' : unit(last[i + 1][at])}`; });
		time.textContent = place == null ? '' : `${clock(last[0][at])} (${clock(last[0][at], undefined, 'UTC')} UTC)`;
	};
	const make = () => {
		const axis = {stroke: css('--soft'), grid: {stroke: css('--line'), width: 1}, ticks: {stroke: css('--line'), width: 1}, font: '11px system-ui'};
		const y = {...axis, size: 64, values: (u, ticks) => ticks.map(unit)};
		if (unit === units.bytes) y.incrs = powers;
		plot?.destroy();
		plot = new uPlot({
			width: element.clientWidth, height: 190, cursor: {y: false, sync: {key: 'weir'}}, legend: {show: false},
			scales: {x: {range: (u, min, max) => range ?? [min, max]}, y: {range: (u, min, max) => [0, Math.max(max ?? 0, unit === units.bytes ? 1024 : 1) * 1.05]}},
			axes: [{...axis, size: 30, values: (u, ticks) => ticks.map(t => clock(t, ticks[1] - ticks[0] < 60 ? '2-digit' : undefined))}, y],
			series: [{}, ...names.map((name, i) => ({stroke: css('--p' + (i + 1)), width: 1.5, points: {show: true, size: 4, filter: short}}))],
			hooks: {setCursor: [u => tell(u.cursor.idx)]},
		}, last, canvas);
	};
	make();
	drawn.push({make, fit: () => plot.setSize({width: element.clientWidth, height: 190})});
	canvas.setAttribute('role', 'img');
	canvas.setAttribute('aria-label', title);
	return columns => {
		range = columns.range;
		last = [columns.at, ...names.map(name => columns[name])];
		plot.setData(last);
		tell(plot.cursor.idx);
		element.dataset.drawn = '';
	};
};

addEventListener('resize', () => { for (const d of drawn) d.fit(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { for (const d of drawn) d.make(); });
