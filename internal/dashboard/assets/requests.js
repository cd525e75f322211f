// The page about requests: the log updates itself while it shows the newest requests.
import {ask, every, fill, say} from './shared.js';

const button = document.querySelector('#log-live');
const state = document.querySelector('#log-state');
let live = !button.hidden;

const describe = () => {
	say(state, live ? 'Live.' : 'Paused.');
	say(button, live ? 'Pause' : 'Continue');
};

const refresh = async () => {
	if (!live) return;
	const f = await ask('/dashboard/requests/log?' + button.dataset.query);
	if (live) fill(f.parts);
};

button.addEventListener('click', () => {
	live = !live;
	describe();
	refresh().catch(() => {});
});
describe();
every(2000, refresh);
