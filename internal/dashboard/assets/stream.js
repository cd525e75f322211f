// The stream page: figures that update themselves, the live tail, and the publish form.
import {ask, bytes, every, fill, number, roughly} from './shared.js';
import {draw} from './plot.js';
import {Tail} from './tail.js';

const stream = document.querySelector('#stream');
const at = '/dashboard/streams/' + stream.dataset.id;
const updates = [...document.querySelectorAll('.plot')].map(draw);
const show = (name, value) => { document.querySelector(`[data-value="${name}"]`).textContent = value; };

const refresh = async () => {
	const f = await ask(at + '/figures');
	for (const update of updates) update(f.plot);
	for (const name of ['cursor', 'batches', 'subscribers', 'missing']) show(name, number(f[name]));
	show('bytes_stored', bytes(f.bytes_stored));
	show('range', f.oldest ? `${f.oldest.Seq} to ${f.newest.Seq}` : 'none');
	show('age', f.oldest ? roughly(f.age) : 'none');
	document.querySelector('#size').value = f.bytes_stored;
	document.querySelector('#age').value = f.age;
	fill(f.parts);
};
every(5000, refresh);

new Tail(at + '/tail', stream.dataset.mode, () => refresh().catch(() => {}));

document.querySelector('#publish')?.addEventListener('submit', async event => {
	event.preventDefault();
	const said = document.querySelector('#publish-said');
	try {
		const ack = await ask(at + '/publish', {method: 'POST', body: document.querySelector('#publish-text').value});
		said.textContent = `Published with sequence number ${ack.seq}.`;
		refresh().catch(() => {});
	} catch (fault) {
		said.textContent = 'Refused: ' + fault.message;
	}
});
