// Asks pa11y what it thinks of the page that a browser shows just now.
//
//     node pa11y.cjs MODULES DEBUGGER
//
// MODULES: where pa11y is installed (node_modules). DEBUGGER: host:port of the browser's debugger. Each line on the
// standard input is a question; the answer is a line of JSON: what is wrong, or { "failed": why }. Ends with its input.
//
// pa11y would open a browser of its own and load the address. A page that was the answer to a form (a key, shown
// once) cannot be loaded again, so it is shown the page of the person who is at it: nothing is loaded or resized.
'use strict';
const path = require('path');
const readline = require('readline');

const [modules, address] = process.argv.slice(2);
const pa11y = require(path.join(modules, 'pa11y'));
const puppeteer = require(path.join(modules, 'puppeteer'));

async function look() {
    const browser = await puppeteer.connect({ browserURL: `http://${address}`, defaultViewport: null });
    try {
        const page = (await browser.pages()).find((one) => one.url().startsWith('https:'));
        if (!page) throw new Error('no page is open');
        page.setViewport = async () => {};
        const found = await pa11y(page.url(), { browser, page, ignoreUrl: true, standard: 'WCAG2AA', timeout: 60000 });
        return found.issues.map(({ code, message, context, selector }) => ({ code, message, context, selector }));
    } finally {
        await browser.disconnect();
    }
}

(async () => {
    for await (const _ of readline.createInterface({ input: process.stdin })) {
        const answer = await look().catch((error) => ({ failed: String(error) }));
        process.stdout.write(`${JSON.stringify(answer)}\n`);
    }
})();
