// CPU map of a node: sockets > NUMA nodes > L3 caches > cores > CPUs. A claim is shown by a letter, a color and a
// pattern, never by color alone. One CPU is in the tab order; arrow keys move between CPUs.
import { html, cx, useRef, useState } from "./ui.js";
import { groupBy, ranges } from "./format.js";
import { Ref } from "./components.js";

const TONES = 8;
const STATES = { claimed: "claimed", shared: "shared pool", reserved: "reserved", offline: "offline" };

function letters(n) {
  const last = String.fromCharCode(65 + (n % 26));
  return n < 26 ? last : letters(Math.floor(n / 26) - 1) + last;
}

/** Return all CPUs of the tree with their locations. */
export function flatten(topology) {
  const all = [];
  for (const socket of topology.sockets || [])
    for (const numa of socket.numa || [])
      for (const l3 of numa.l3 || [])
        for (const core of l3.cores || [])
          for (const cpu of core.cpus || []) all.push({ ...cpu, core: core.id, l3: l3.id, numa: numa.id, socket: socket.id });
  // The location of offline CPUs is unknown.
  for (const cpu of topology.offline || []) all.push({ ...cpu, core: -1, l3: -1, numa: -1, socket: -1 });
  return all;
}

export function describe(cpu) {
  const held = cpu.claim ? `claim ${cpu.claim}` : STATES[cpu.state] || cpu.state;
  const where = [cpu.core >= 0 && `core ${cpu.core}`, cpu.numa >= 0 && `NUMA ${cpu.numa}`, cpu.kind].filter(Boolean);
  return [`CPU ${cpu.id}`, ...where, cpu.state === "offline" && cpu.claim ? `offline, ${held}` : held].join(", ");
}

function labelOf(what, id) {
  return id >= 0 ? `${what} ${id}` : `${what} unknown`;
}

/** Return the claims in the order of their first CPU, with letter, tone and CPUs. */
function claimsOf(cpus) {
  const found = new Map();
  for (const cpu of cpus) {
    if (!cpu.claim) continue;
    if (!found.has(cpu.claim)) found.set(cpu.claim, { claim: cpu.claim, letter: letters(found.size), tone: found.size % TONES, cpus: [] });
    found.get(cpu.claim).cpus.push(cpu.id);
  }
  return found;
}

export function Topology({ of }) {
  const cpus = flatten(of);
  const claims = claimsOf(cpus);
  const [at, setAt] = useState(cpus.length ? cpus[0].id : null);
  const [described, setDescribed] = useState(null);
  const [selected, setSelected] = useState("");
  const box = useRef(null);
  const indices = new Map(cpus.map((cpu, i) => [cpu.id, i]));

  const onKeyDown = (event) => {
    const index = indices.get(at) ?? 0;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = cpus[Math.max(0, Math.min(cpus.length - 1, index + step))];
    setAt(next.id);
    box.current.querySelector(`[data-cpu="${next.id}"]`).focus();
  };
  const highlighted = selected || (described && described.claim) || "";
  const core = (coreOf, l3, numa, socket) => html`<div class="core" key=${`${socket.id}/${coreOf.id}`}>
    ${(coreOf.cpus || []).map((raw) => {
      const cpu = cpus[indices.get(raw.id)];
      const claim = claims.get(cpu.claim);
      return html`<button
        type="button"
        key=${cpu.id}
        data-cpu=${cpu.id}
        class=${cx("cpu", claim ? `tone tone-${claim.tone}` : `cpu-${cpu.state}`, highlighted && cpu.claim !== highlighted && "is-dim")}
        tabindex=${cpu.id === at ? 0 : -1}
        aria-label=${describe(cpu)}
        aria-pressed=${cpu.claim ? selected === cpu.claim : undefined}
        title=${describe(cpu)}
        onFocus=${() => {
          setAt(cpu.id);
          setDescribed(cpu);
        }}
        onMouseEnter=${() => setDescribed(cpu)}
        onClick=${() => cpu.claim && setSelected(selected === cpu.claim ? "" : cpu.claim)}
      >
        <span class="cpu-letter" aria-hidden="true">${claim ? claim.letter : cpu.state === "reserved" ? "R" : cpu.state === "offline" ? "x" : ""}</span>
        <span class="cpu-id" aria-hidden="true">${cpu.id}</span>
      </button>`;
    })}
  </div>`;
  const states = groupBy(cpus.filter((cpu) => !cpu.claim), (cpu) => cpu.state);
  return html`<div class="topology">
    <div class="cpu-map" role="group" aria-label="CPU map; arrow keys move between CPUs" ref=${box} onKeyDown=${onKeyDown} onMouseLeave=${() => setDescribed(null)}>
      ${(of.sockets || []).map(
        (socket) => html`<section class="socket" aria-label=${labelOf("Socket", socket.id)}>
          <h4>${labelOf("Socket", socket.id)}</h4>
          <div class="socket-body">
            ${(socket.numa || []).map(
              (numa) => html`<section class="numa" aria-label=${labelOf("NUMA", numa.id)}>
                <h5>${labelOf("NUMA", numa.id)}</h5>
                <div class="numa-body">
                  ${(numa.l3 || []).map(
                    (l3) => html`<div class="l3">
                      <span class="l3-name">${labelOf("L3", l3.id)}</span>
                      <div class="cores">${(l3.cores || []).map((one) => core(one, l3, numa, socket))}</div>
                    </div>`,
                  )}
                </div>
              </section>`,
            )}
          </div>
        </section>`,
      )}
      ${(of.offline || []).length > 0 &&
      html`<section class="socket" aria-label="Offline">
        <h4>Offline</h4>
        <div class="cores">${core({ id: -1, cpus: of.offline }, { id: -1 }, { id: -1 }, { id: -1 })}</div>
      </section>`}
    </div>
    <p class="cpu-detail" aria-hidden="true">${described ? describe(described) : "Point at a CPU, or move with the arrow keys; a click highlights its claim."}</p>
    <ul class="legend cpu-legend" aria-label="CPUs by claim">
      ${[...claims.values()].map(
        (one) => html`<li class=${cx(highlighted === one.claim && "is-lit")}>
          <span class=${`cpu swatch-cpu tone tone-${one.tone}`} aria-hidden="true"><span class="cpu-letter">${one.letter}</span></span>
          <${Ref} kind="claim" of=${one.claim} /> <span class="muted">${one.cpus.length} CPUs: ${ranges(one.cpus)}</span>
        </li>`,
      )}
      ${[...states].map(
        ([state, those]) => html`<li>
          <span class=${`cpu swatch-cpu cpu-${state}`} aria-hidden="true"><span class="cpu-letter">${state === "reserved" ? "R" : state === "offline" ? "x" : ""}</span></span>
          ${STATES[state] || state} <span class="muted">${those.length} CPUs: ${ranges(those.map((cpu) => cpu.id))}</span>
        </li>`,
      )}
    </ul>
    ${of.source && html`<p class="muted small">Source: ${of.source}</p>`}
  </div>`;
}
