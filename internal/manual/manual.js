// Loaded by every page of the manual: the search, and a copy button on every block of code.

const form = document.querySelector('form[role=search]');
const field = form.querySelector('input');
const found = form.querySelector('ul');
const said = form.querySelector('[role=status]');

const element = (name, props = {}, ...children) => {
	const made = Object.assign(document.createElement(name), props);
	made.append(...children);
	return made;
};

// load fetches the index at the first search. It forgets a failed attempt, so that the next
// search tries again.
let index;
const load = () => index ??= fetch('/docs/search.json').then(async response => {
	if (!response.ok) throw new Error(response.status);
	const all = [];
	for (const page of await response.json()) {
		for (const s of page.sections) {
			const place = s.within ? `${page.name} › ${s.within}` : page.name;
			all.push({...s, path: page.path, place, heading: s.title.toLowerCase(), around: place.toLowerCase(), low: s.text.toLowerCase()});
		}
	}
	return all;
}).catch(error => { index = undefined; throw error; });

// wordsOf returns the words of a query. A plural finds the singular as well.
const wordsOf = query => query.toLowerCase().split(/\s+/).filter(Boolean).map(w => w.length > 3 ? w.replace(/s$/, '') : w);

// weigh returns how well a word fits a text: 2 if a word of the text begins with it, 1 if it is
// elsewhere in the text, 0 if it is not there.
const weigh = (text, word) => {
	let value = 0;
	for (let at = text.indexOf(word); at >= 0 && value < 2; at = text.indexOf(word, at + 1)) {
		value = at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]) ? 2 : 1;
	}
	return value;
};

// search returns the sections that have the most words of the query, best first. A heading counts
// more than the names of the page and the section around it, and these count more than the text.
const search = (all, query, words) => {
	let best = 1; // the most words of the query that a section has
	const hits = [];
	for (const s of all) {
		let has = 0, score = 0;
		for (const word of words) {
			const value = 10 * weigh(s.heading, word) + 3 * weigh(s.around, word) + Math.min(5, s.low.split(word).length - 1);
			if (value > 0) has++;
			score += value;
		}
		if (s.heading === query) score += 50;
		if (has < best) continue;
		if (has > best) hits.length = 0;
		best = has;
		hits.push({...s, score});
	}
	return hits.sort((a, b) => b.score - a.score);
};

// marked returns a text with the words of the query marked.
const marked = (text, words) => {
	const any = new RegExp(`(${words.map(w => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`, 'gi');
	return text.split(any).map((part, i) => i % 2 ? element('mark', {textContent: part}) : part);
};

// excerpt returns the part of a text around the first word of the query that the text has.
const excerpt = (s, words) => {
	const at = Math.min(...words.map(w => s.low.indexOf(w)).filter(n => n >= 0), s.text.length);
	const from = at < s.text.length && at > 50 ? s.text.indexOf(' ', at - 50) + 1 : 0;
	const to = s.text.length > from + 150 ? s.text.lastIndexOf(' ', from + 150) : s.text.length;
	return (from > 0 ? '… ' : '') + s.text.slice(from, to) + (to < s.text.length ? ' …' : '');
};

const most = 20; // results that are shown

const close = () => {
	found.hidden = true;
	said.textContent = '';
};

const show = async () => {
	const query = field.value, words = wordsOf(query);
	if (words.length === 0) return close();
	let hits;
	try {
		hits = search(await load(), query.trim().toLowerCase(), words);
	} catch {
		if (query === field.value) said.textContent = 'The search index could not be loaded.';
		return;
	}
	if (query !== field.value) return; // the reader has typed more, and a later call shows the result
	found.replaceChildren(...hits.slice(0, most).map(s => element('li', {}, element('a', {href: s.path + (s.id && '#' + s.id)},
		element('b', {}, ...marked(s.title, words)), ' ', element('small', {textContent: s.place}), element('span', {}, ...marked(excerpt(s, words), words))))));
	found.hidden = hits.length === 0;
	found.scrollTop = 0;
	said.textContent = hits.length === 0 ? 'Nothing found' : hits.length === 1 ? '1 result' : hits.length > most ? `${most} of ${hits.length} results` : `${hits.length} results`;
};

field.addEventListener('focus', () => load().catch(() => {}));
field.addEventListener('input', show);
field.addEventListener('click', show);
form.addEventListener('submit', async event => { // Enter opens the best result
	event.preventDefault();
	await show();
	if (!found.hidden) found.querySelector('a')?.click();
});
form.addEventListener('keydown', event => {
	if (event.key === 'Escape') {
		field.focus();
		close();
		return;
	}
	const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
	if (!step) return;
	event.preventDefault();
	if (found.hidden) {
		show();
		return;
	}
	const stops = [field, ...found.querySelectorAll('a')];
	stops[Math.min(stops.length - 1, Math.max(0, stops.indexOf(document.activeElement) + step))].focus();
});
form.addEventListener('focusout', event => { if (!form.contains(event.relatedTarget)) close(); });
// Keep the focus in the field. Safari does not focus a link that is clicked, so focusout would hide
// the list before the click.
found.addEventListener('mousedown', event => event.preventDefault());
found.addEventListener('click', event => { // a result on this page loads no other page, so the list must be closed
	if (event.target.closest('a')) close();
});
document.addEventListener('keydown', event => {
	if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input')) return;
	event.preventDefault();
	field.focus();
});

// Without JavaScript, a search opens this page with the query in its address. With JavaScript, a
// link to such an address shows the results.
if (location.pathname === '/docs/search') {
	field.value = new URLSearchParams(location.search).get('q') ?? '';
	field.focus();
	show();
}

for (const block of document.querySelectorAll('figure.code')) {
	const caption = block.querySelector('figcaption'), code = block.querySelector('code');
	const button = element('button', {type: 'button', textContent: 'Copy', ariaLabel: `Copy (${caption.textContent})`});
	button.addEventListener('click', async () => {
		try {
			await navigator.clipboard.writeText(code.textContent.replace(/\n$/, ''));
			button.textContent = 'Copied';
		} catch { // browsers refuse access to the clipboard over plain HTTP: select the text, so that the reader can copy it with the keyboard
			getSelection().selectAllChildren(code);
			button.textContent = 'Selected';
		}
		button.ariaLabel = button.textContent;
		setTimeout(() => { button.textContent = 'Copy'; button.ariaLabel = `Copy (${caption.firstChild.textContent})`; }, 2000);
	});
	caption.append(button);
}
