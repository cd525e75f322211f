// What every page has: buttons that copy, and times that say how long ago they were.
import {ago, say} from './shared.js';

ago();
setInterval(ago, 10000);

document.addEventListener('click', async event => {
	const button = event.target.closest('[data-copy]');
	if (!button) return;
	const text = document.getElementById(button.dataset.copy);
	const label = button.firstChild;
	const said = document.querySelector('#said');
	try {
		await navigator.clipboard.writeText(text.textContent);
		label.textContent = 'Copied';
		say(said, `The ${text.ariaLabel} was copied.`);
	} catch { // not allowed here: it is marked, for the keyboard
		getSelection().selectAllChildren(text);
		label.textContent = 'Marked';
		say(said, `The ${text.ariaLabel} is marked, and can be copied with the keyboard.`);
	}
	setTimeout(() => { label.textContent = 'Copy'; say(said, ''); }, 2000);
});
