// The first page refreshes itself.
import {ask, bytes, every} from './shared.js';
import {draw} from './plot.js';

const plots = document.querySelector('.plots');
const updates = [...plots.querySelectorAll('.plot')].map(draw);
const text = (selector, value) => { const e = document.querySelector(selector); if (e) e.textContent = value; };

every(10000, async () => {
	const f = await ask('/dashboard/figures?span=' + plots.dataset.span);
	for (const update of updates) update(f.plots);
	for (const t of f.tiles) {
		const [value, note] = document.querySelectorAll(`[data-tile="${t.Name}"] dd`);
		value.textContent = t.Value;
		note.textContent = t.Note;
	}
	text('#status', f.status);
	document.querySelector('#status').classList.toggle('bad', !f.ok);
	text('#uptime', f.uptime);
	text('#forecast', f.forecast);
	const disk = document.querySelector('#disk-used');
	if (disk) {
		disk.value = f.used;
		text('#disk-text', `${bytes(f.used)} of ${bytes(f.size)} in use, ${bytes(f.size - f.used)} free`);
	}
});
