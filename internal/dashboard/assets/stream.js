// The stream page: figures that update themselves, the event browser, and the publish form.
import {ask, bytes, every, fill, number, roughly} from './shared.js';
import {draw} from './plot.js';
import {Events} from './events.js';

const stream = document.querySelector('#stream');
const {span} = document.querySelector('.plots').dataset;
const at = '/dashboard/streams/' + stream.dataset.id;
const updates = [...document.querySelectorAll('.plot')].map(draw);
const set = (name, value) => { document.querySelector(`[data-value="${name}"]`).textContent = value; };

const show = f => {
	for (const name of ['cursor', 'batches', 'subscribers', 'missing']) set(name, number(f[name]));
	set('bytes_stored', bytes(f.bytes_stored));
	set('range', f.oldest ? `${number(f.oldest.Seq)} to ${number(f.newest.Seq)}` : 'none');
	set('age', f.oldest ? roughly(f.age) : 'none');
	document.querySelector('#size').value = f.bytes_stored;
	document.querySelector('#age').value = f.age;
	fill(f.parts);
};

const events = new Events(at, stream.dataset.mode, show);
let turn = 0;

// While the page follows the stream, the figures come with the events, so that both are of the same
// moment. The plots are updated only every five seconds.
every(1000, async () => {
	if (events.ended) return;
	if (turn++ % 5 === 0) {
		const f = await ask(`${at}/figures?span=${span}`).catch(fault => { if (fault.status !== 404) throw fault; });
		if (!f) return events.poll();
		for (const update of updates) update(f.plots);
		if (!events.isLive) {
			show(f);
			events.behind(f);
		} else {
			fill({audience: f.parts.audience}); // a response with events does not contain this list
		}
	}
	await events.poll();
});

document.querySelector('#publish')?.addEventListener('submit', async event => {
	event.preventDefault();
	const said = document.querySelector('#publish-said');
	try {
		const ack = await ask(at + '/publish', {method: 'POST', body: document.querySelector('#publish-text').value});
		said.textContent = `Published with sequence number ${ack.seq}.`;
		events.poll().catch(() => {});
	} catch (fault) {
		said.textContent = 'Refused: ' + fault.message;
	}
});
