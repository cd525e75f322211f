package manual

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unrun lists the blocks that the tests do not run, by document and by the start of the block. The
// value is the reason.
var unrun = map[string]map[string]string{
	"manual/index.md": {"make build": "it builds into the source tree; the function binary builds the same program elsewhere"},
	"operating.md": {
		"sysctl ":               "it changes the machine",
		"curl --http2 --cacert": "covered by cmd/weir/testdata/https.txtar",
		"weir serve --http 0":   "it needs a public host name",
		"WEIR_BOOTSTRAP_KEYS=":  "covered by cmd/weir/testdata/bootstrap.txtar",
		"systemctl ":            "it needs systemd",
		"weir check --largest":  "covered by cmd/weir/testdata/drop.txtar",
		"echo \"releases":       "covered by make released",
		"docker load":           "it needs Docker",
	},
	"cluster.md": {
		"weir serve --data node1":  "covered by TestContractCluster in internal/trials",
		"weir serve --data node4":  "covered by TestGrowAndShrink in internal/trials",
		"weir node ":               "covered by TestGrowAndShrink in internal/trials",
		"weir migrate":             "covered by TestMigrate in internal/trials",
		"weir backup":              "covered by TestBackupCluster in internal/service",
		"weir restore":             "covered by TestBackupCluster in internal/service",
		"weir serve --engine nats": "it needs NATS servers",
		"jetstream {":              "a configuration of NATS",
		"defaults\n  mode http":    "a configuration of HAProxy",
	},
	"manual/ai-chat.md": {"cd examples/ai-chat": "it installs packages; covered by the tests of examples/ai-chat"},
	"benchmarks.md":     {"make bench": "it takes fifteen minutes", "apt install": "it installs software"},
	"decisions.md":      {"retry: 1000": "SSE frames, covered by the contract suite", "id: 7": "SSE frames, covered by the contract suite", "id: 41": "SSE frames, covered by the contract suite"},
}

// reason returns why the tests do not run the block, or "" if they do.
func (b block) reason(document string) string {
	for begin, why := range unrun[document] {
		if strings.HasPrefix(b.text, begin) {
			return why
		}
	}
	return ""
}

// TestSnippets runs the code blocks of every page from top to bottom, as a reader with an empty
// directory would, and compares their output with the manual. On all pages except the first, a
// server is already running, and the reader has its address and its key.
func TestSnippets(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	for _, c := range chapters {
		for _, l := range c.leaves {
			if l.source == "" {
				continue
			}
			t.Run(filepath.Base(l.path), func(t *testing.T) {
				t.Parallel()
				r := newReader(t)
				if l.source != "manual/index.md" && len(blocksOf(t, l.source)) > 0 {
					r.serve(block{text: "weir serve\n"})
					r.run(block{text: "WEIR_URL=" + printed + " WEIR_KEY=svc_live_…\n"}, nil)
				}
				root, err := filepath.Abs("../..")
				if err != nil {
					t.Fatal(err)
				}
				r.places = []string{
					"SOURCES=$PWD", "SOURCES=" + root, "https://streams.example.com", r.url, "1000000", "10000",
					"127.0.0.1:3000", free(t), "/usr/local/share/man", r.dir, "/var/lib/weir-new", filepath.Join(r.dir, "new"), "/var/lib/weir", filepath.Join(r.dir, "weir-data"), "/backups/", r.dir + "/"}
				r.follow(l.source)
			})
		}
	}
}

// free returns an address on this machine that no program listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// follow runs the code blocks of a document in order.
func (r *reader) follow(document string) {
	blocks := blocksOf(r.t, document)
	for i, b := range blocks {
		if b.is("output") || b.reason(document) != "" {
			continue
		}
		var output *block
		if i+1 < len(blocks) && blocks[i+1].is("output") {
			output = &blocks[i+1]
		}
		outer := r.t
		r.t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) {
			r.t = t
			defer func() { r.t = outer }()
			r.do(b, output)
		})
	}
}

// do handles one block according to its language and the words after it. The parameter output is
// the block with the expected output, or nil.
func (r *reader) do(b block, output *block) {
	t := r.t
	t.Helper()
	name := b.value("file")
	switch {
	case b.value("browser") != "":
		r.browse(b)
	case b.value("excerpt") != "":
		source, err := os.ReadFile(filepath.Join("../..", b.value("excerpt")))
		if err != nil || !strings.Contains(string(source), b.text) {
			t.Errorf("%s does not have these lines (%v):\n%s", b.value("excerpt"), err, b.text)
		}
	case name != "":
		path := filepath.Join(r.dir, name)
		if err := os.WriteFile(path, []byte(r.localise(b.text)), 0o600); err != nil {
			t.Fatal(err)
		}
		if b.language == "go" {
			if out, err := exec.Command("gofmt", "-l", path).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s is not formatted with gofmt: %v", name, err)
			}
		}
	case b.language == "toml":
		if err := os.WriteFile(filepath.Join(r.dir, "weir.toml"), []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.run(block{text: "weir config --config weir.toml\n"}, nil)
	case b.language != "sh":
		t.Errorf("the tests cannot handle a block with the info string %q %v", b.language, b.words)
	case b.is("serve") || strings.TrimSpace(b.text) == "weir serve":
		if r.server != nil {
			return // the page shows the command a second time
		}
		if text := r.serve(b); output != nil && !output.pattern(false).MatchString(text) {
			t.Errorf("the server printed\n%s\nwant\n%s", text, output.text)
		}
	case b.is("follow"):
		r.watch(b, output)
	case b.is("background"):
		r.background(b, output)
	default:
		if strings.HasPrefix(b.text, "weir check") && r.server != nil {
			r.server.end(syscall.SIGTERM)
			r.server = nil
		}
		r.run(b, output)
	}
}

// run runs a block until it ends, and compares its output with the expected output.
func (r *reader) run(b block, output *block) {
	r.t.Helper()
	r.requirePrograms(b)
	p := start(r.t, r.shell(b, ""))
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.end(syscall.SIGKILL)
	}
	text, _ := p.output()
	if p.err != nil {
		r.t.Fatalf("%v\n%s", p.err, text)
	}
	if k := aKey.FindString(text); k != "" {
		r.key = k
	}
	if output != nil && !output.pattern(true).MatchString(r.asPrinted(text)) {
		r.t.Errorf("the block printed\n%s\nwant\n%s", text, output.text)
	}
}

// watch is for a block that does not end by itself. It stops the block when the block has printed
// the expected output.
func (r *reader) watch(b block, output *block) {
	t := r.t
	t.Helper()
	if output == nil {
		t.Fatal("a block marked follow must be followed by an output block")
	}
	r.requirePrograms(b)
	p := start(t, r.shell(b, ""))
	defer p.end(syscall.SIGINT)
	if text, err := p.await(func(s string) bool { return output.pattern(false).MatchString(r.asPrinted(s)) }); err != nil {
		t.Errorf("%v; the block printed\n%s\nwant\n%s", err, text, output.text)
	}
}

// background starts a block that runs until the end of the page, and waits until it has printed the
// expected output.
func (r *reader) background(b block, output *block) {
	r.t.Helper()
	if output == nil {
		r.t.Fatal("a block marked background must be followed by an output block")
	}
	r.requirePrograms(b)
	p := start(r.t, r.shell(b, ""))
	r.others = append(r.others, p)
	want := block{text: r.localise(output.text)}
	if text, err := p.await(func(s string) bool { return want.pattern(false).MatchString(s) }); err != nil {
		r.t.Errorf("%v; the block printed\n%s\nwant\n%s", err, text, want.text)
	}
}

// requirePrograms skips the test if a program that a block runs is not installed.
func (r *reader) requirePrograms(b block) {
	r.t.Helper()
	for _, program := range []string{"node", "python3"} {
		if strings.Contains(b.text, program+" ") {
			r.requireProgram(program)
		}
	}
}

// requireProgram skips the test if a program is not installed.
func (r *reader) requireProgram(program string) string {
	r.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		r.t.Skipf("%s is not installed", program)
	}
	return path
}

// reports is a script that sends the text of a page to the test whenever that text changes.
const reports = `<script>
new MutationObserver(() => fetch("%s", {method: "POST", mode: "no-cors", body: document.body ? document.body.innerText : ""}))
	.observe(document, {childList: true, subtree: true, characterData: true});
window.addEventListener("unhandledrejection", e => fetch("%[1]s", {method: "POST", mode: "no-cors", body: "failed: " + e.reason}));
</script>
`

// browse opens a saved page in a browser and waits until it shows the expected text.
func (r *reader) browse(b block) {
	t := r.t
	t.Helper()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("Chromium is not installed: tools/browser can install it")
	}
	shown := make(chan string, 1000)
	listener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		text, _ := io.ReadAll(q.Body)
		select {
		case shown <- string(text):
		default:
		}
	}))
	defer listener.Close()
	path := filepath.Join(r.dir, b.value("browser"))
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	watched, shows := strings.TrimSuffix(path, ".html")+"-watched.html", r.localise(b.value("at"))
	if shows != "" {
		watched = path
	} else {
		shows = "file://" + watched
	}
	if err := os.WriteFile(watched, []byte(strings.Replace(string(page), "\n", "\n"+fmt.Sprintf(reports, listener.URL), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+filepath.Join(r.dir, "profile"), shows))
	defer p.end(syscall.SIGTERM)
	last, late := "", time.After(patience)
	for {
		select {
		case last = <-shown:
			if b.pattern(true).MatchString(last) {
				return
			}
		case <-p.exited:
			text, _ := p.output()
			t.Fatalf("the browser exited: %v\n%s", p.err, text)
		case <-late:
			t.Fatalf("the page shows %q, want %q", last, b.text)
		}
	}
}
