// The page of a key: plots that update themselves.
import {ask, every, fill} from './shared.js';
import {draw} from './plot.js';

const {id, span} = document.querySelector('#key').dataset;
const updates = [...document.querySelectorAll('.plot')].map(draw);

every(10000, async () => {
	const f = await ask(`/dashboard/keys/${id}/figures?span=${span}`);
	for (const update of updates) update(f.plots);
	fill(f.parts);
});
