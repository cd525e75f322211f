// What every page has: buttons that copy, and times that say how long ago they were.
import {roughly} from './shared.js';

const ago = () => {
	for (const e of document.querySelectorAll('time[title]')) {
		const seconds = (Date.now() - Date.parse(e.dateTime)) / 1000;
		e.textContent = seconds < 5 ? 'just now' : roughly(seconds) + ' ago';
	}
};
ago();
setInterval(ago, 10000);

document.addEventListener('click', async event => {
	const button = event.target.closest('[data-copy]');
	if (!button) return;
	const text = document.getElementById(button.dataset.copy);
	const label = button.firstChild;
	try {
		await navigator.clipboard.writeText(text.textContent);
		label.textContent = 'Copied';
	} catch { // not allowed here: it is marked, for the keyboard
		getSelection().selectAllChildren(text);
		label.textContent = 'Marked';
	}
	setTimeout(() => { label.textContent = 'Copy'; }, 2000);
});
