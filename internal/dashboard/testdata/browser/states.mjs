// The steps of run.mjs that look at servers in other states: a node of a cluster with 1,000 streams,
// a missing node and a full disk, and an empty server. The parameter of stateSteps has the functions
// and values of run.mjs that the steps use.
import {strict as assert} from 'node:assert';

const sizes = {'': {width: 1280, height: 900}, '-wide': {width: 2200, height: 1200}, '-phone': {width: 360, height: 740}};

export const stateSteps = ({password, open, inspect, shoot}) => {
	// visit opens the pages of a server, and calls look for each page. It looks at a page in light and
	// dark and on screens of several sizes if there are pictures to take, and otherwise only in the
	// variants whose names are in checks, because every variant takes long.
	const visit = async (from, kind, pages, checks, look) => {
		const page = await open({}, from);
		await page.goto(from + '/dashboard/sign-in');
		await page.getByLabel('Password').fill(password);
		await page.getByRole('button', {name: 'Sign in'}).click();
		await page.getByRole('heading', {name: 'Overview'}).waitFor();
		for (const [name, path] of Object.entries(pages)) {
			for (const colorScheme of ['light', 'dark']) {
				for (const [size, viewport] of Object.entries(sizes)) {
					const variant = `${name}${size}-${colorScheme}`;
					if (!process.env.PICTURES && !checks.includes(variant)) continue;
					await page.emulateMedia({colorScheme});
					await page.setViewportSize(viewport);
					await page.goto(from + path);
					if (name === 'overview') await page.locator('[data-drawn]').last().waitFor();
					await look(page, name);
					await inspect(page, `${kind}_${variant}`);
					await shoot(page, `${kind}_${variant}`, {fullPage: true});
				}
			}
		}
		await page.context().close();
	};
	return {
		async 'the pages of a cluster with 1,000 streams, a missing node and a full disk'() {
			const {TROUBLED: from} = process.env;
			await visit(from, 'troubled', {overview: '/dashboard', cluster: '/dashboard/cluster', streams: '/dashboard/streams?sort=bytes'}, ['overview-light', 'cluster-light', 'cluster-phone-dark', 'streams-light'], async (page, name) => {
				for (const text of ['The store is full.', '2 of 3 nodes are connected.']) await page.locator('[data-part=trouble]').getByText(text).waitFor();
				if (name === 'cluster') {
					await page.getByRole('rowheader', {name: 'cat'}).waitFor();
					await page.locator('.state.bad').getByText('missing').waitFor();
				}
				if (name === 'streams') assert.ok(await page.locator('tbody tr').count() <= 100, 'the list of streams has no pages');
			});
		},
		async 'the pages of an empty server'() {
			const {EMPTY: from} = process.env;
			await visit(from, 'empty', {overview: '/dashboard', streams: '/dashboard/streams', requests: '/dashboard/requests'}, ['overview-light', 'requests-light'], async () => {});
		},
	};
};
