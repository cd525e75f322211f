// The stream picker in the form for a new key.
import {ask} from './shared.js';

const project = document.querySelector('#project');
const confined = document.querySelector('#confined');
const picker = document.querySelector('#picker');
const pick = document.querySelector('#pick');
const choices = document.querySelector('#choices');

const toggle = () => { picker.hidden = !confined.checked; };
confined.addEventListener('change', toggle);
toggle();

let asked = 0;
const search = async keep => {
	const turn = ++asked;
	const list = await ask('/dashboard/streams/pick?' + new URLSearchParams({project: project.value, q: pick.value}));
	if (turn !== asked) return; // the text changed while this search was running: the search for the new text shows the list
	const chosen = keep ? [...choices.querySelectorAll('label:has(:checked)')] : [];
	const have = new Set(chosen.map(label => label.querySelector('input').value));
	const rows = list.filter(s => !have.has(s.id)).map(s => {
		const label = document.createElement('label');
		label.className = 'check';
		const box = Object.assign(document.createElement('input'), {type: 'checkbox', name: 'stream', value: s.id});
		const id = document.createElement('code');
		id.textContent = s.id;
		label.append(box, ' ' + s.name + ' ', id);
		return label;
	});
	choices.replaceChildren(...chosen, ...rows);
	if (!chosen.length && !rows.length) choices.textContent = 'No streams found.';
};
pick.addEventListener('input', () => search(true));
pick.addEventListener('keydown', event => { if (event.key === 'Enter') event.preventDefault(); });
project.addEventListener('change', () => { pick.value = ''; search(false); });
