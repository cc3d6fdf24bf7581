// A polling loop after the published Node sample: fetch to read, http to approve, and both kinds
// of agents. Prints one line of JSON for each document that differs from the one before.
const http = require("http");
const [url, name] = process.argv.slice(2);

function post(eventId, agent) {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify({ StartRequests: [{ EventId: eventId }] });
    const options = { method: "POST", headers: { Metadata: "true" }, agent };
    const request = http.request(url, options, (answer) => {
      answer.resume();
      answer.on("end", () => (answer.statusCode === 200 ? resolve() : reject(answer.statusCode)));
    });
    request.on("error", reject);
    request.end(body); // without a length: Node sends it chunked
  });
}

async function main() {
  const kept = new http.Agent({ keepAlive: true });
  const approved = new Set();
  let last = null;
  let seen = false;
  for (;;) {
    const answer = await fetch(url, { headers: { Metadata: "true" } });
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    const document = await answer.json();
    if (document.DocumentIncarnation !== last) {
      last = document.DocumentIncarnation;
      console.log(JSON.stringify(document));
      for (const event of document.Events) {
        if (!event.Resources.includes(name)) continue;
        seen = true;
        if (event.EventStatus === "Scheduled" && !approved.has(event.EventId)) {
          approved.add(event.EventId);
          await post(event.EventId, new http.Agent()); // closes after its answer
          await post(event.EventId, kept);
          await fetch(url, {
            method: "POST",
            headers: { Metadata: "true" },
            body: JSON.stringify({ StartRequests: [{ EventId: event.EventId }] }),
          }).then((each) => each.text());
        }
      }
      if (seen && document.Events.length === 0) break;
    }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  kept.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
