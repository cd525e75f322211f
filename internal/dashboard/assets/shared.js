// What several pages use.

export const bytes = n => {
	for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
		if (Math.abs(n) < 1024 || unit === 'TiB') return n.toFixed(unit === 'B' || Math.abs(n) >= 100 ? 0 : 1) + ' ' + unit;
		n /= 1024;
	}
};

export const number = n => String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');

export const roughly = seconds => {
	const unit = (n, one) => (n = Math.round(n)) + ' ' + one + (n === 1 ? '' : 's');
	if (seconds < 90) return unit(seconds, 'second');
	if (seconds < 5400) return unit(seconds / 60, 'minute');
	if (seconds < 129600) return unit(seconds / 3600, 'hour');
	return unit(seconds / 86400, 'day');
};

// say sets a text, if it is another one: a screen reader reads what is set.
export const say = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };

// ago says beside every time, or instead of it, how long ago that was.
export const ago = () => {
	for (const e of document.querySelectorAll('time[data-ago], time + .ago')) {
		const seconds = (Date.now() - Date.parse((e.matches('time') ? e : e.previousElementSibling).dateTime)) / 1000;
		say(e, seconds < 5 ? 'just now' : roughly(seconds) + ' ago');
	}
};

// fill puts parts of the page into it that the server made anew; where the keyboard is, nothing is replaced.
const filled = {};
export const fill = parts => {
	for (const [name, html] of Object.entries(parts)) {
		const e = document.querySelector(`[data-part="${name}"]`);
		if (!e || filled[name] === html || e.querySelector(':focus')) continue;
		e.innerHTML = filled[name] = html; // it is a template of the server's, which escapes
	}
	ago();
};

export const toSignIn = () => location.assign('/dashboard/sign-in?next=' + encodeURIComponent(location.pathname + location.search));

// ask gets JSON. Whoever is signed out is sent to sign in. An error has the status of the answer, if there was one.
export const ask = async (path, options) => {
	const answer = await fetch(path, {headers: {accept: 'application/json'}, signal: AbortSignal.timeout(20000), ...options});
	if (answer.status === 401) toSignIn();
	const value = await answer.json().catch(() => ({}));
	if (!answer.ok) throw Object.assign(new Error(value.error?.message ?? 'the server answered ' + answer.status), {status: answer.status});
	return value;
};

// every does something at once and again and again while somebody looks. A page that is not refreshed any more says so.
export const every = (milliseconds, f) => {
	const line = document.querySelector('#stale');
	let since = new Date(), timer;
	const turn = async () => {
		clearTimeout(timer);
		if (document.hidden) return; // it goes on when somebody looks
		try {
			await f();
			since = new Date();
			say(line, '');
			document.body.classList.remove('stale');
		} catch (fault) {
			say(line, fault.status ? `This page is not refreshed: ${fault.message}.` : `No answer from the server since ${since.toLocaleTimeString([], {hour12: false})}: this page shows what was then.`);
			document.body.classList.add('stale');
		}
		clearTimeout(timer);
		timer = setTimeout(turn, milliseconds);
	};
	document.addEventListener('visibilitychange', turn);
	turn();
};
