package dashboard

import (
	"net/http"
	"strings"

	"weir"
	"weir/internal/access"
)

// connectView is the data of the page that shows how programs use a stream.
type connectView struct {
	Object    weir.Stream
	Demo      bool
	Use       string // publish or subscribe
	KeyID     string // id of the key that was created on this page; empty if there is none
	IsShown   bool   // the programs contain the key
	Programs  []program
	Manual    string // page of the manual
	Publishes bool   // Use is publish
}

// program is an example for one language.
type program struct {
	ID, Title, Text string
}

// connect shows programs that publish to a stream or subscribe to it, with the address of this server
// and the id of the stream. After connectKey has created a key, the programs contain it, once.
func (v *visit) connect() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	o, err := s.Object(v.r.Context())
	if err != nil {
		return err
	}
	w := connectView{Object: o, Demo: s.Project == access.DemoProject, Use: "subscribe", Manual: "/docs/subscribing"}
	if v.query("use") == "publish" && !w.Demo {
		w.Use, w.Publishes, w.Manual = "publish", true, "/docs/publishing"
	}
	secret := "svc_live_…"
	if w.Demo {
		secret = access.DemoKey
	}
	if k, ok := v.Access.Key(v.query("key")); ok {
		w.KeyID = k.ID
		if made := v.reveal(k.ID); made != "" {
			secret, w.IsShown = made, true
		}
	}
	fill := strings.NewReplacer("{url}", v.BaseURL, "{stream}", string(o.ID), "{key}", secret, "{curl}", v.Curl)
	for _, p := range examples[w.Use+" "+string(o.Mode)] {
		p.Text = fill.Replace(p.Text)
		w.Programs = append(w.Programs, p)
	}
	if w.Demo {
		w.Programs = append(w.Programs, program{"browser", "EventSource", fill.Replace(eventSource)})
	}
	return v.page(http.StatusOK, "connect", "Connect to "+o.Name, w)
}

// connectKey creates a key that can do with the stream what the programs do, and nothing else.
func (v *visit) connectKey() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	use, can := "subscribe", access.Read
	if v.field("use") == "publish" {
		use, can = "publish", access.Publish
	}
	page := "/dashboard/streams/" + string(s.ID) + "/connect?use=" + use
	k, secret, err := v.Access.CreateKey(v.r.Context(), access.KeySpec{
		Project: s.Project, Kind: access.Live, Name: "connect: " + use, Permissions: []access.Permission{can}, Streams: []weir.StreamID{s.ID},
	})
	if err != nil {
		return v.sorry(page, err)
	}
	v.session.keep(k.ID, secret.Reveal())
	v.did("key created", k.Masked+" "+k.ID+" "+k.Name)
	return v.back(page+"&key="+k.ID, "")
}

// examples are the programs, by use and mode of the stream. {url}, {stream} and {key} stand for the
// address of this server, the id of the stream and the key, {curl} for further flags of curl.
var examples = map[string][]program{
	"publish json": {
		{"curl", "curl", `curl -sS{curl} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{"events":["hello"]}' {url}/v1/streams/{stream}/publish`},
		{"shell", "Shell", `export WEIR_URL={url} WEIR_KEY={key}
echo '"hello"' | weir publish {stream}`},
		{"javascript", "JavaScript", `import { Client } from "{url}/client.js";

const client = new Client({ url: "{url}", key: "{key}" });
await client.publish("{stream}", ["hello"]);`},
		{"go", "Go", `package main

import (
	"context"
	"log"

	"weir/client"
)

func main() {
	c, err := client.New(client.Options{URL: "{url}", Key: "{key}"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Publish(context.Background(), "{stream}", client.Events("hello")); err != nil {
		log.Fatal(err)
	}
}`},
		{"python", "Python", `import weir

client = weir.Client("{url}", key="{key}")
client.publish("{stream}", ["hello"])`},
	},
	"publish raw": {
		{"curl", "curl", `curl -sS{curl} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/octet-stream' --data-binary hello {url}/v1/streams/{stream}/publish`},
		{"javascript", "JavaScript", `import { Client } from "{url}/client.js";

const client = new Client({ url: "{url}", key: "{key}" });
await client.publish("{stream}", new TextEncoder().encode("hello"));`},
		{"python", "Python", `import weir

client = weir.Client("{url}", key="{key}")
client.publish("{stream}", b"hello")`},
	},
	"subscribe json": {
		{"curl", "curl", `curl -sSN{curl} -H 'Authorization: Bearer {key}' -H 'Accept: text/event-stream' '{url}/v1/streams/{stream}?cursor=0'`},
		{"shell", "Shell", `export WEIR_URL={url} WEIR_KEY={key}
weir tail {stream} --cursor 0`},
		{"javascript", "JavaScript", `import { Client } from "{url}/client.js";

const client = new Client({ url: "{url}", key: "{key}" });
for await (const batch of client.subscribe("{stream}", { cursor: "oldest" })) console.log(batch.seq, batch.events);`},
		{"go", "Go", `package main

import (
	"context"
	"fmt"
	"log"

	"weir/client"
)

func main() {
	c, err := client.New(client.Options{URL: "{url}", Key: "{key}"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sub := c.Subscriber("{stream}", client.SubscriberOptions{From: client.Oldest})
	for batch, err := range sub.Batches(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		for _, event := range batch.Events {
			fmt.Println(batch.Seq, string(event))
		}
	}
}`},
		{"python", "Python", `import weir

client = weir.Client("{url}", key="{key}")
for batch in client.subscribe("{stream}", "oldest"):
    print(batch.seq, batch.events, flush=True)`},
	},
	"subscribe raw": {
		{"curl", "curl", `curl -sSN{curl} -H 'Authorization: Bearer {key}' -H 'Accept: text/event-stream' '{url}/v1/streams/{stream}?cursor=0'`},
		{"shell", "Shell", `export WEIR_URL={url} WEIR_KEY={key}
weir tail {stream} --cursor 0`},
		{"javascript", "JavaScript", `import { Client } from "{url}/client.js";

const client = new Client({ url: "{url}", key: "{key}" });
for await (const batch of client.subscribe("{stream}", { cursor: "oldest" })) console.log(batch.seq, batch.data);`},
	},
}

// eventSource works only without a key, because EventSource cannot send header fields.
const eventSource = `const source = new EventSource("{url}/v1/streams/{stream}?cursor=0");
source.addEventListener("batch", (event) => console.log(event.lastEventId, event.data));`
