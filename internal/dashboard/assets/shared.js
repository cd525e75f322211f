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

// ask gets JSON. Whoever is signed out is sent to sign in.
export const ask = async (path, options) => {
	const answer = await fetch(path, {headers: {accept: 'application/json'}, ...options});
	if (answer.status === 401) location.assign('/dashboard/sign-in?next=' + encodeURIComponent(location.pathname + location.search));
	const value = await answer.json().catch(() => ({}));
	if (!answer.ok) throw new Error(value.error ?? 'the server answered ' + answer.status);
	return value;
};

// every does something at once and again and again while somebody looks.
export const every = (milliseconds, f) => {
	const turn = async () => {
		if (!document.hidden) await f().catch(() => {}); // it is tried again
		setTimeout(turn, milliseconds);
	};
	turn();
};
