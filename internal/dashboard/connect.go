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

// program is an example in one language.
type program struct {
	ID, Title, Text string
}

// connect shows programs that publish to a stream or subscribe to it, with the address of this
// server and the id of the stream. After connectKey has created a key, the programs contain the key
// the first time that they are shown.
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

// connectKey creates a key that allows only what the programs do: reading this stream, or
// publishing to it.
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
	v.keep(k.ID, secret.Reveal())
	v.did("key created", k.Masked+" "+k.ID+" "+k.Name)
	return v.back(page+"&key="+k.ID, "")
}

// examples are the programs, by use and mode of the stream. In them, {url}, {stream} and {key}
// stand for the address of this server, the id of the stream and the key, and {curl} stands for
// further flags of curl.
var examples = map[string][]program{
	"publish json": {
		{"curl", "curl", `curl -sS{curl} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{"events":["hello"]}' {url}/v1/streams/{stream}/publish`},
		shell(`echo '"hello"' | weir publish {stream}`),
		javaScript(`await client.publish("{stream}", ["hello"]);`),
		goProgram(`	"log"`, `	if _, err := c.Publish(context.Background(), "{stream}", client.Events("hello")); err != nil {
		log.Fatal(err)
	}`),
		python(`client.publish("{stream}", ["hello"])`),
	},
	"publish raw": {
		{"curl", "curl", `curl -sS{curl} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/octet-stream' --data-binary hello {url}/v1/streams/{stream}/publish`},
		javaScript(`await client.publish("{stream}", new TextEncoder().encode("hello"));`),
		python(`client.publish("{stream}", b"hello")`),
	},
	"subscribe json": {
		curlSubscribe,
		shell(`weir tail {stream} --cursor 0`),
		javaScript(`for await (const batch of client.subscribe("{stream}", { cursor: "oldest" })) console.log(batch.seq, batch.events);`),
		goProgram(`	"fmt"
	"log"`, `	sub := c.Subscriber("{stream}", client.SubscriberOptions{From: client.Oldest})
	for batch, err := range sub.Batches(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		for _, event := range batch.Events {
			fmt.Println(batch.Seq, string(event))
		}
	}`),
		python(`for batch in client.subscribe("{stream}", "oldest"):
    print(batch.seq, batch.events, flush=True)`),
	},
	"subscribe raw": {
		curlSubscribe,
		shell(`weir tail {stream} --cursor 0`),
		javaScript(`for await (const batch of client.subscribe("{stream}", { cursor: "oldest" })) console.log(batch.seq, batch.data);`),
	},
}

var curlSubscribe = program{"curl", "curl", `curl -sSN{curl} -H 'Authorization: Bearer {key}' -H 'Accept: text/event-stream' '{url}/v1/streams/{stream}?cursor=0'`}

func shell(command string) program {
	return program{"shell", "Shell", "export WEIR_URL={url} WEIR_KEY={key}\n" + command}
}

// javaScript, goProgram and python return a program that creates a client and then runs the
// statements in the parameter body.
func javaScript(body string) program {
	return program{"javascript", "JavaScript", `import { Client } from "{url}/client.js";

const client = new Client({ url: "{url}", key: "{key}" });
` + body}
}

func goProgram(imports, body string) program {
	return program{"go", "Go", `package main

import (
	"context"
` + imports + `

	"weir/client"
)

func main() {
	c, err := client.New(client.Options{URL: "{url}", Key: "{key}"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
` + body + `
}`}
}

func python(body string) program {
	return program{"python", "Python", `import weir

client = weir.Client("{url}", key="{key}")
` + body}
}

// eventSource works only without a key, because EventSource cannot send header fields.
const eventSource = `const source = new EventSource("{url}/v1/streams/{stream}?cursor=0");
source.addEventListener("batch", (event) => console.log(event.lastEventId, event.data));`
