// Loaded by every page: copy buttons, and the "5 minutes ago" beside each time.
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
	} catch { // browsers refuse access to the clipboard over plain HTTP: select the text, so that the user can copy it with the keyboard
		getSelection().selectAllChildren(text);
		label.textContent = 'Selected';
		say(said, `The ${text.ariaLabel} is selected. Copy it with the keyboard.`);
	}
	setTimeout(() => { label.textContent = 'Copy'; say(said, ''); }, 2000);
});
