// Stand-ins for k6's modules, and a run of a script's iterations: node k6_stand_ins.mjs FOLDER < orders
// FOLDER has load.mjs, whose imports are those of the generated node_modules/k6. Prints what was sent and recorded.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const orders = JSON.parse(readFileSync(0, 'utf8'));
globalThis.__ENV = orders.environment;
const started = Date.now() - orders.since_start_s * 1000;
globalThis.k6 = { started, sent: [], recorded: [], slept: 0, orders, iteration: 0, phase: '' };
const script = await import(pathToFileURL(`${process.argv[2]}/load.mjs`));
for (const [phase, iterations] of Object.entries(orders.iterations)) {
  globalThis.k6.phase = phase;
  for (let number = 0; number < iterations; number += 1) {
    globalThis.k6.iteration = number;
    script[orders.function]();
  }
}
const { sent, recorded, slept } = globalThis.k6;
process.stdout.write(JSON.stringify({ sent, recorded, slept, options: script.options }));
