package enginetest

import (
	"errors"
	"fmt"
	"slices"

	"weir"
	"weir/internal/engine"
)

var closeCases = []testCase{
	{"after Close every call returns ErrClosed", []string{
		"Later calls on the engine and its logs return ErrClosed. Closing twice does nothing.",
	}, closedForGood},
	{"Close waits for appends in flight", []string{
		"Close waits for the calls in flight, makes their writes durable and closes the store.",
	}, closeWaits},
	{"a fresh store is ready", []string{
		"Status reports whether the store takes writes now.",
	}, statusReady},
}

func closedForGood(s *store) {
	doc, log := s.stream("stream", nil)
	_, closed := s.stream("closed", nil)
	s.append(log, batches(1)...)
	s.closeLog(closed)
	if err := s.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	_, create := s.Create(s.ctx, "new", nil)
	_, update := s.Update(s.ctx, "stream", nil, doc.Revision)
	_, get := s.Get(s.ctx, "stream")
	_, list := s.List(s.ctx, "", "", 10)
	_, open := s.Open(s.ctx, doc.Created, newJudge())
	_, read := log.Read(s.ctx, 1)
	_, header := log.Header(s.ctx, 1)
	for what, err := range map[string]error{
		"create": create, "update": update, "delete": s.Delete(s.ctx, "stream", 0), "get": get, "list": list, "open": open,
		"append": log.Append(s.ctx, batch(2, "")), "read": read, "header": header, "trim": log.Trim(s.ctx, 1, nil),
		"catch up": s.CatchUp(s.ctx), "catch up with the log": log.CatchUp(s.ctx),
		"watch":                  s.Watch(s.ctx, engine.Everything, func(engine.Change) {}),
		"scan":                   log.Scan(s.ctx, 0, 0, func(*engine.Entry) bool { return true }),
		"append to a closed log": closed.Append(s.ctx, batch(1, "")),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			s.Errorf("%s: %v", what, err)
		}
	}
	if err := log.Close(); err != nil && !errors.Is(err, engine.ErrClosed) {
		s.Errorf("close the log: %v", err)
	}
	log.Headers(0, func(engine.Header) bool { return true })
	if got := s.Status(); got.State != engine.Closed || got.Reason == nil {
		s.Errorf("status: %+v", got)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			s.Errorf("close again: %v", err)
		}
	}
}

func closeWaits(s *store) {
	const logs, each = 5, 100
	judges := make([]*judge, logs)
	docs := make([]engine.Document, logs)
	open := make([]engine.Log, logs)
	for i := range logs {
		judges[i] = counting(1)
		docs[i], open[i] = s.stream(fmt.Sprint("stream ", i), judges[i])
	}
	places := make([]place, logs*each)
	stored := make([]bool, logs*each)
	s.parallel(logs*each, func(i int) {
		if i == logs*each/2 {
			if err := s.Close(); err != nil {
				s.Errorf("close: %v", err)
			}
			return
		}
		e := batch(0, "payload")
		e.Proposer = &places[i]
		err := open[i%logs].Append(s.ctx, e)
		if err != nil && !errors.Is(err, engine.ErrClosed) {
			s.Errorf("append: %v", err)
		}
		stored[i] = err == nil
		if err == nil {
			if err := judges[i%logs].settled(&places[i]); err != nil {
				s.Error(err)
			}
		}
	})
	s.reopen()
	for i := range logs {
		var want []weir.Seq
		for k := i; k < len(places); k += logs {
			if stored[k] {
				want = append(want, places[k].seq)
			}
		}
		slices.Sort(want)
		got := s.seqs(s.open(docs[i].Created, newJudge()))
		for _, seq := range want {
			if !slices.Contains(got, seq) {
				s.Errorf("log %d: entry %d was appended, but is missing", i, seq)
			}
		}
	}
}

func statusReady(s *store) {
	if got := s.Status(); got.State != engine.Ready || got.Reason != nil {
		s.Fatalf("%+v", got)
	}
	s.reopen()
	if got := s.Status(); got.State != engine.Ready || got.Reason != nil {
		s.Fatalf("%+v", got)
	}
}
