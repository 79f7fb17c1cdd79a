// Owns: the frame around every page (head, navigation, state of the stream, foot) and which page is shown.
import { Component, html, cx, render, useEffect, useRef } from "./ui.js";
import { useRoute } from "./router.js";
import { changed, useApi } from "./store.js";
import { follow, useLive } from "./live.js";
import { useTheme } from "./theme.js";
import { KeysDialog, useKeys } from "./keys.js";
import { Icon, Mark } from "./marks.js";
import { Head } from "./pieces.js";
import { count } from "./format.js";
import { Overview } from "./pages/overview.js";
import { Node } from "./pages/node.js";
import { Devices, Pools } from "./pages/devices.js";
import { Claims } from "./pages/claims.js";
import { Explain, Pending } from "./pages/pending.js";
import { Namespaces } from "./pages/namespaces.js";
import { Audit } from "./pages/audit.js";
import { Whatif } from "./pages/whatif.js";

const PAGES = [
  ["", "Overview"],
  ["devices", "Devices"],
  ["claims", "Claims"],
  ["pending", "Pending"],
  ["namespaces", "Namespaces"],
  ["audit", "Audit"],
  ["whatif", "What if"],
];
/** Which entry of the navigation a page belongs to. */
const UNDER = { nodes: "", pools: "devices" };

function Page({ route }) {
  const [page = "", ...rest] = route.parts;
  const { query } = route;
  if (page === "" || (page === "nodes" && !rest.length)) return html`<${Overview} query=${query} />`;
  if (page === "nodes" && rest.length === 1) return html`<${Node} key=${rest[0]} name=${rest[0]} />`;
  if (page === "explain" && rest.length === 3 && (rest[0] === "pod" || rest[0] === "claim")) {
    return html`<${Explain} kind=${rest[0]} namespace=${rest[1]} name=${rest[2]} />`;
  }
  if (!rest.length) {
    if (page === "devices") return html`<${Devices} query=${query} />`;
    if (page === "pools") return html`<${Pools} query=${query} />`;
    if (page === "claims") return html`<${Claims} query=${query} />`;
    if (page === "pending") return html`<${Pending} query=${query} />`;
    if (page === "namespaces") return html`<${Namespaces} query=${query} />`;
    if (page === "audit") return html`<${Audit} query=${query} />`;
    if (page === "whatif") return html`<${Whatif} query=${query} />`;
  }
  return html`<${Head} title="No such page" /><p>There is nothing at <code>${location.hash}</code>. <a href="#/">To the overview</a></p>`;
}

/** A page that cannot be drawn says so, and the others go on working. */
class Guard extends Component {
  constructor(props) {
    super(props);
    this.state = { problem: null };
  }

  static getDerivedStateFromError(problem) {
    return { problem };
  }

  componentDidCatch(problem) {
    console.error(problem);
  }

  render() {
    const { problem } = this.state;
    if (!problem) return this.props.children;
    return html`<${Head} title="This page could not be drawn" />
      <div class="notice is-error" role="alert"><${Icon} name="warn" /><span>${String((problem && problem.message) || problem)}</span></div>`;
  }
}

const LIVE = {
  connecting: ["connecting", "Connecting"],
  live: ["live", "Live"],
  reconnecting: ["lost", "Reconnecting"],
  static: ["static", "Static dump"],
};

/** `lost`: the server answers, but the cluster does not. */
function LiveSign({ lost }) {
  const state = useLive();
  const [look, text] = lost && state === "live" ? ["lost", "Cluster lost"] : LIVE[state];
  return html`<span class=${`live live-${look}`} role="status" aria-live="polite"><span class="live-dot" aria-hidden="true"></span>${text}</span>`;
}

const THEMES = { "": ["auto", "as the system"], light: ["sun", "light"], dark: ["moon", "dark"] };

function App() {
  const route = useRoute();
  const overview = useApi("api/overview");
  const [theme, nextTheme] = useTheme();
  const dialog = useRef(null);
  const showKeys = () => dialog.current.open || dialog.current.showModal();
  useKeys({ showKeys, nextTheme });
  const main = useRef(null);
  const first = useRef(true);

  useEffect(() => {
    if (overview.data) follow(overview.data.live);
  }, [overview.data && overview.data.live]);

  // Nobody tells when the audit of a dump is done: ask again, ever more rarely.
  const waits = overview.data && overview.data.live === false && !overview.data.findings;
  const pause = useRef(500);
  useEffect(() => {
    if (!waits) return undefined;
    const timer = setTimeout(() => changed({ kinds: ["Finding"] }), pause.current);
    pause.current = Math.min(30000, pause.current * 2);
    return () => clearTimeout(timer);
  }, [overview.data]);

  // A new page starts at its top, and its heading is read out; the first one is left as the browser has it.
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const heading = document.getElementById("page-title");
    if (heading) heading.focus({ preventScroll: true });
    const link = document.querySelector(".frame-nav [aria-current]");
    if (link) link.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (!restoring) scrollTo(0, 0);
    restoring = false;
  }, [route.path]);

  const now = route.parts[0] === "explain" ? (route.parts[1] === "claim" ? "claims" : "pending") : UNDER[route.parts[0]] ?? route.parts[0] ?? "";
  const counts = overview.data ? overview.data.counts : {};
  const findings = (overview.data && overview.data.findings) || {};
  const badge = {
    pending: counts.pending ? ["warn", counts.pending, "pending"] : null,
    audit: findings.error ? ["bad", findings.error, "errors"] : null,
  };
  const [icon, said] = THEMES[theme] || THEMES[""];
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
    main.current.scrollIntoView();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <header class="frame-head">
      <a class="brand" href="#/" aria-label="Plimsoll, overview"><${Mark} /><span>Plimsoll</span></a>
      <nav class="frame-nav" aria-label="Pages">
        ${PAGES.map(([key, text]) => {
          const sign = badge[key];
          return html`<a href=${`#/${key}`} aria-current=${now === key ? "page" : undefined}>
            ${text}${sign && html` <span class=${`count tone-${sign[0]}`}>${count(sign[1])}<span class="unseen"> ${sign[2]}</span></span>`}
          </a>`;
        })}
      </nav>
      <div class="frame-side">
        <${LiveSign} lost=${overview.data && (overview.data.troubles || []).length > 0} />
        <button type="button" class="quiet" onClick=${nextTheme} aria-label=${`Theme: ${said}; change`} title=${`Theme: ${said}`}><${Icon} name=${icon} /></button>
        <button type="button" class="quiet" onClick=${showKeys} aria-label="Keys" title="Keys">?</button>
      </div>
    </header>
    <main id="main" tabindex="-1" ref=${main} class=${cx("page", `page-${route.parts[0] || "overview"}`)}>
      <${Guard} key=${route.path}><${Page} route=${route} /><//>
    </main>
    <footer class="frame-foot">
      ${overview.data && html`<span>${overview.data.origin}</span><span>rules: ${overview.data.profile}</span><span>revision ${overview.data.revision}</span>`}
    </footer>
    <${KeysDialog} dialog=${dialog} />`;
}

// Set when one goes back or forth: the browser then knows where one was.
let restoring = false;
if (history.state === null) history.replaceState({ seen: true }, "");
addEventListener("popstate", (event) => {
  if (event.isTrusted) restoring = history.state !== null && history.state.seen === true;
  if (history.state === null) history.replaceState({ seen: true }, "");
});

render(html`<${App} />`, document.getElementById("app"));
