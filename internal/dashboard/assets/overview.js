// The overview page updates itself. It fetches the figures and the plots of the last hour every ten
// seconds, and the plots of the last day every minute.
import {ask, every, fill, say} from './shared.js';
import {draw} from './plot.js';

const {span} = document.querySelector('.plots').dataset;
const updates = [...document.querySelectorAll('.plot')].map(draw);
const status = document.querySelector('#status');
let turn = 0;

every(10000, async () => {
	const f = await ask('/dashboard/figures?span=' + (span === 'hour' || turn % 6 === 0 ? span : 'none'));
	turn++;
	if (f.plots) for (const update of updates) update(f.plots);
	for (const t of f.tiles) {
		const [value, note] = document.querySelectorAll(`[data-tile="${t.Name}"] dd`);
		value.textContent = t.Value;
		note.textContent = t.Note;
	}
	say(status, f.status);
	status.classList.toggle('bad', !f.ok);
	say(document.querySelector('#uptime'), f.uptime);
	fill(f.parts);
});
