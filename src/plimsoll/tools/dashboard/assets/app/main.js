// Entry point: the frame of every page (header, navigation, stream status, footer) and the routing to pages.
import { Component, html, cx, render, useEffect, useRef } from "./ui.js";
import { useRoute } from "./router.js";
import { changed, useApi } from "./store.js";
import { follow, useLive } from "./live.js";
import { useTheme } from "./theme.js";
import { KeysDialog, useKeys } from "./keys.js";
import { Icon, Logo } from "./icons.js";
import { Head } from "./components.js";
import { count } from "./format.js";
import { Overview } from "./pages/overview.js";
import { Node } from "./pages/node.js";
import { Devices, Pools } from "./pages/devices.js";
import { Claims } from "./pages/claims.js";
import { Explain, Pending } from "./pages/pending.js";
import { Pods } from "./pages/pods.js";
import { Namespaces } from "./pages/namespaces.js";
import { History } from "./pages/history.js";
import { Audit } from "./pages/audit.js";
import { Whatif } from "./pages/whatif.js";

const PAGES = [
  ["", "Overview"],
  ["devices", "Devices"],
  ["claims", "Claims"],
  ["pods", "Pods"],
  ["pending", "Pending"],
  ["namespaces", "Namespaces"],
  ["history", "History"],
  ["audit", "Audit"],
  ["whatif", "What if"],
];
/** Navigation entries of pages that have none of their own. */
const PARENT = { nodes: "", pools: "devices" };

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
    if (page === "pods") return html`<${Pods} query=${query} />`;
    if (page === "pending") return html`<${Pending} query=${query} />`;
    if (page === "namespaces") return html`<${Namespaces} query=${query} />`;
    if (page === "history") return html`<${History} query=${query} />`;
    if (page === "audit") return html`<${Audit} query=${query} />`;
    if (page === "whatif") return html`<${Whatif} query=${query} />`;
  }
  return html`<${Head} title="Page not found" /><p><code>${location.hash}</code> does not exist. <a href="#/">Back to the overview</a></p>`;
}

/** Error boundary: an error in one page does not affect the others. */
class ErrorBoundary extends Component {
  constructor(props) {
    super(props);
    this.state = { error: null };
  }

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    console.error(error);
  }

  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return html`<${Head} title="This page could not be displayed" />
      <div class="notice is-error" role="alert"><${Icon} name="warn" /><span>${String(error.message || error)}</span></div>`;
  }
}

const LIVE = {
  connecting: ["connecting", "Connecting"],
  live: ["live", "Live"],
  reconnecting: ["lost", "Reconnecting"],
  static: ["static", "Static dump"],
};

/** Status of the stream; `lost` if the dashboard is reachable and the cluster is not. */
function LiveStatus({ lost }) {
  const state = useLive();
  const [look, text] = lost && state === "live" ? ["lost", "Cluster unreachable"] : LIVE[state];
  return html`<span class=${`live live-${look}`} role="status" aria-live="polite"><span class="live-dot" aria-hidden="true"></span>${text}</span>`;
}

const THEMES = { "": ["auto", "system"], light: ["sun", "light"], dark: ["moon", "dark"] };

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

  // A dump has no event stream: poll until its audit is done, with exponential backoff.
  const auditRunning = overview.data && overview.data.live === false && !overview.data.findings;
  const pause = useRef(500);
  useEffect(() => {
    if (!auditRunning) return undefined;
    const timer = setTimeout(() => changed({ kinds: ["Finding"] }), pause.current);
    pause.current = Math.min(30000, pause.current * 2);
    return () => clearTimeout(timer);
  }, [overview.data]);

  // A new page starts at the top and its heading gets the focus, so that it is read out; not on the first load.
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

  const current = route.parts[0] === "explain" ? (route.parts[1] === "claim" ? "claims" : "pending") : PARENT[route.parts[0]] ?? route.parts[0] ?? "";
  const counts = overview.data ? overview.data.counts : {};
  const findings = (overview.data && overview.data.findings) || {};
  const badge = {
    pending: counts.pending ? ["warn", counts.pending, "pending"] : null,
    audit: findings.error ? ["bad", findings.error, "errors"] : null,
  };
  const [icon, themeName] = THEMES[theme] || THEMES[""];
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
    main.current.scrollIntoView();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <header class="frame-head">
      <a class="brand" href="#/" aria-label="Plimsoll, overview"><${Logo} /><span>Plimsoll</span></a>
      <nav class="frame-nav" aria-label="Pages">
        ${PAGES.map(([key, text]) => {
          const entry = badge[key];
          return html`<a href=${`#/${key}`} aria-current=${current === key ? "page" : undefined}>
            ${text}${entry && html` <span class=${`count tone-${entry[0]}`}>${count(entry[1])}<span class="unseen"> ${entry[2]}</span></span>`}
          </a>`;
        })}
      </nav>
      <div class="frame-side">
        <${LiveStatus} lost=${overview.data && (overview.data.troubles || []).length > 0} />
        <button type="button" class="quiet" onClick=${nextTheme} aria-label=${`Theme: ${themeName}; change`} title=${`Theme: ${themeName}`}><${Icon} name=${icon} /></button>
        <button type="button" class="quiet" onClick=${showKeys} aria-label="Keyboard shortcuts" title="Keyboard shortcuts">?</button>
      </div>
    </header>
    <main id="main" tabindex="-1" ref=${main} class=${cx("page", `page-${route.parts[0] || "overview"}`)}>
      <${ErrorBoundary} key=${route.path}><${Page} route=${route} /><//>
    </main>
    <footer class="frame-foot">
      ${overview.data && html`<span>${overview.data.origin}</span><span>profile ${overview.data.profile}</span><span>revision ${overview.data.revision}</span>`}
    </footer>
    <${KeysDialog} dialog=${dialog} />`;
}

// Set on back and forward navigation, where the browser restores the scroll position.
let restoring = false;
if (history.state === null) history.replaceState({ visited: true }, "");
addEventListener("popstate", (event) => {
  if (event.isTrusted) restoring = history.state !== null && history.state.visited === true;
  if (history.state === null) history.replaceState({ visited: true }, "");
});

render(html`<${App} />`, document.getElementById("app"));
