package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"weir/internal/engine"
)

// Figures are stored in one document per hour, which is rewritten every minute. So the plots
// survive a restart, and a crash loses at most the figures of one minute.

// figuresRecord is the stored form of an hour.
type figuresRecord struct {
	Samples [][]float64       `json:"samples"`        // one sample per minute, with the columns in the order of the constants
	Keys    map[string]uint64 `json:"keys,omitempty"` // requests by key ID
}

// maxStoredKeys is the maximum number of keys in a document.
const maxStoredKeys = 10_000

// figuresDocument returns the document key of an hour.
func (d *Dashboard) figuresDocument(hour int64) string {
	return fmt.Sprintf("%s%010d", d.figuresOf(), hour)
}

// figuresOf returns the key prefix of the documents with the figures of this node.
func (d *Dashboard) figuresOf() string {
	if d.Node == "" {
		return FiguresPrefix
	}
	return FiguresPrefix + d.Node + "/"
}

// loadFigures reads the hours of the last day that this node stored. It deletes the older hours of
// all nodes, because a node that has left the cluster cannot delete its own.
func (d *Dashboard) loadFigures(ctx context.Context) error {
	docs, err := d.Documents.List(ctx, FiguresPrefix, "", 1000)
	if err != nil {
		return fmt.Errorf("list %s: %w", FiguresPrefix, err)
	}
	oldest := d.Now().Unix()/3600 - 24
	f := &d.figures
	for _, doc := range docs {
		hour, err := strconv.ParseInt(doc.Key[strings.LastIndexByte(doc.Key, '/')+1:], 10, 64)
		if err != nil || hour < oldest {
			if err := d.Documents.Delete(ctx, doc.Key, 0); err != nil {
				d.Logger.Debug("failed to delete old figures", "error", err)
			}
			continue
		}
		if doc.Key != d.figuresDocument(hour) {
			continue // belongs to another node
		}
		var record figuresRecord
		if err := json.Unmarshal(doc.Value, &record); err != nil { // harmless: this node overwrites the document, or deletes it when it is a day old
			d.Logger.Warn("skipped unreadable figures", "document", doc.Key, "error", err)
			continue
		}
		for _, values := range record.Samples {
			var s sample
			copy(s[:], values)
			f.coarse.add(s)
		}
		if record.Keys != nil && hour > oldest {
			f.usage.hours[hour] = record.Keys
		}
	}
	return nil
}

// storeFigures stores the current hour and the hour before, because the last sample of the hour
// before may not be stored yet. It deletes hours older than a day.
func (d *Dashboard) storeFigures(ctx context.Context) error {
	hour := d.Now().Unix() / 3600
	var faults []error
	for _, h := range []int64{hour - 1, hour} {
		if record := d.hourOf(h); record != nil {
			faults = append(faults, d.storeHour(ctx, h, record))
		}
	}
	oldest := d.figuresDocument(hour - 24)
	for _, key := range d.revisions.keys(d.figuresOf()) {
		if key < oldest {
			if err := d.Documents.Delete(ctx, key, 0); err != nil && !errors.Is(err, engine.ErrNotFound) {
				faults = append(faults, err)
			}
		}
	}
	maps.DeleteFunc(d.written, func(h int64, _ string) bool { return h < hour-24 })
	return errors.Join(faults...)
}

// hourOf returns the stored form of an hour. It returns nil if the hour has no samples, or has not
// changed since it was last written.
func (d *Dashboard) hourOf(hour int64) []byte {
	f := &d.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	record := figuresRecord{Keys: map[string]uint64{}}
	for i := range f.coarse.samples {
		if s := f.coarse.samples[i]; int64(s[at])/3600 == hour {
			for j := range s { // 12 digits are enough, and keep the document small
				s[j], _ = strconv.ParseFloat(strconv.FormatFloat(s[j], 'g', 12, 64), 64)
			}
			record.Samples = append(record.Samples, s[:])
		}
	}
	for id, n := range f.usage.hours[hour] {
		if len(record.Keys) < maxStoredKeys {
			record.Keys[id] = n
		}
	}
	if len(record.Samples) == 0 && len(record.Keys) == 0 {
		return nil
	}
	value, err := json.Marshal(record)
	if err != nil || string(value) == d.written[hour] {
		return nil
	}
	return value
}

// storeHour writes the document of an hour.
func (d *Dashboard) storeHour(ctx context.Context, hour int64, value []byte) error {
	key := d.figuresDocument(hour)
	if err := d.put(ctx, key, value); err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	d.written[hour] = string(value)
	return nil
}

// tick takes a sample. Once a minute it also stores figures, refused sign-ins and changes of
// sessions.
func (d *Dashboard) tick(ctx context.Context) {
	c := d.read()
	d.figures.mu.Lock()
	d.figures.fine.take(&c)
	due := d.figures.coarse.take(&c)
	if due {
		d.figures.usage.take(c.taken, d.Access.Taken())
	}
	d.figures.mu.Unlock()
	if !due {
		return
	}
	d.pasts.take(c.taken, d.Hub, d.Access)
	d.keepFigures(ctx)
	d.keepRefusals(ctx)
	if err := d.sessions.keep(ctx); err != nil {
		d.Logger.Debug("failed to store changes of sessions", "error", err)
	}
	d.programs.keep(ctx, d, false)
}

// keepFigures stores the figures if the store accepts all writes. On an almost full disk it stores
// nothing, because plots must not use up the last free space. If storing fails several times in a
// row, keepFigures logs only the first failure.
func (d *Dashboard) keepFigures(ctx context.Context) {
	if !d.Writes() {
		return
	}
	err := d.storeFigures(ctx)
	if err != nil && !d.complained {
		d.Logger.Warn("failed to store dashboard figures", "error", err)
	}
	d.complained = err != nil
}

// read takes a snapshot of all counters.
func (d *Dashboard) read() counts {
	return readCounts(d.Now(), d.API.Stats(), d.Hub.Stats(), d.Store())
}

// run samples until the dashboard is closed.
func (d *Dashboard) run() {
	t := time.NewTicker(fineEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.tick(context.Background())
		case <-d.closing:
			return
		}
	}
}
