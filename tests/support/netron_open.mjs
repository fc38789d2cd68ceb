// Open a file with Netron's own code and print what it shows as JSON.
// Usage: node netron_open.mjs <folder of netron's sources> <file>
import * as fs from 'fs';
import * as path from 'path';
import { pathToFileURL } from 'url';

const [folder, file] = process.argv.slice(2);
const load = (id) => import(pathToFileURL(path.join(folder, `${id.replace('./', '')}.js`)));
const base = await load('./base');
const view = await load('./view');

const errors = [];
const host = {
    require: load,
    asset: async (name) => fs.readFileSync(path.join(folder, name), 'utf-8'),
    error: (error) => errors.push(error.message),
    event: () => {},
    environment: () => null
};
const context = {
    ...host,
    identifier: path.basename(file),
    stream: new base.BinaryStream(new Uint8Array(fs.readFileSync(file))),
    entries: new Map(),
    request: host.asset
};

const plain = (value) => {
    if (typeof value === 'bigint') {
        return Number(value);
    }
    return Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value, plain) : value;
};
const tensorOf = (tensor) => {
    const decoded = new base.Tensor(tensor);
    return { type: tensor.type.toString(), empty: decoded.empty, value: decoded.empty ? null : plain(decoded.value) };
};
const valueOf = (value) => ({
    name: value.name,
    type: value.type ? value.type.toString() : null,
    denotation: value.type ? value.type.denotation : null,
    initializer: value.initializer ? tensorOf(value.initializer) : null
});
const argumentOf = (argument) => ({ name: argument.name, value: argument.value.map(valueOf) });
const nodeOf = (node) => ({
    name: node.name,
    type: node.type.name,
    inputs: node.inputs.map(argumentOf),
    outputs: node.outputs.map(argumentOf),
    attributes: Object.fromEntries(node.attributes.map((attribute) => [
        attribute.name, new view.Formatter(attribute.value, attribute.type).toString()
    ]))
});

const service = new view.ModelFactoryService(host);
const model = await service.open(context);
const modules = model.modules.map((graph) => ({ name: graph.name, nodes: graph.nodes.map(nodeOf) }));
console.log(JSON.stringify({ format: model.format, modules, errors }));
