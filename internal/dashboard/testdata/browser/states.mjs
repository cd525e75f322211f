// The steps of run.mjs that look at servers in other states: a node of a cluster with 1,000 streams,
// a missing node and a full disk, and an empty server. The parameter of stateSteps has the functions
// of run.mjs that the steps use.
import {strict as assert} from 'node:assert';

export const stateSteps = ({open, signIn, inspect, variants, pagesOf, show}) => {
	// visit opens the pages of a server in all variants, and calls look for each page. Without PICTURES,
	// it opens only the pages that look different in this state, whose names are in checked.
	const visit = async (from, state, checked, look) => {
		const page = await open({}, from);
		await signIn(page, {from});
		for (const [name, path] of Object.entries(await pagesOf(page, from))) {
			if (!checked.includes(name) && !process.env.PICTURES) continue;
			await show(page, from, name, path);
			await look(page, name);
			await inspect(page, `${state}_${name}`);
			await variants(page, `${state}_${name}`);
		}
		await page.context().close();
	};
	return {
		async 'the pages of a cluster with 1,000 streams, a missing node and a full disk'() {
			await visit(process.env.TROUBLED, 'troubled', ['overview', 'cluster', 'streams'], async (page, name) => {
				for (const text of ['The store is full.', '2 of 3 nodes are connected.']) await page.locator('[data-part=trouble]').getByText(text).waitFor();
				if (name === 'cluster') {
					await page.getByRole('rowheader', {name: 'cat'}).waitFor();
					await page.locator('.state.bad').getByText('missing').waitFor();
				}
				if (name === 'streams') assert.ok(await page.locator('tbody tr').count() <= 100, 'the list of streams has no pages');
			});
		},
		async 'a page that arrives slowly is shown when it is complete'() {
			const from = process.env.TROUBLED, page = await open({}, from);
			await signIn(page, {from});
			const devtools = await page.context().newCDPSession(page);
			await devtools.send('Network.emulateNetworkConditions', {offline: false, latency: 0, downloadThroughput: 5_000, uploadThroughput: -1});
			await page.goto(from + '/dashboard/streams');
			const shown = await (await page.waitForFunction(() => performance.getEntriesByName('first-paint')[0]?.startTime)).jsonValue();
			const arrived = await page.evaluate(() => performance.getEntriesByType('navigation')[0].responseEnd);
			assert.ok(shown >= arrived, `the page was shown after ${shown} ms, and had arrived after ${arrived} ms: the columns of its table move`);
			await page.context().close();
		},
		async 'the pages of an empty server'() {
			await visit(process.env.EMPTY, 'empty', ['overview', 'streams', 'requests'], async () => {});
		},
	};
};
