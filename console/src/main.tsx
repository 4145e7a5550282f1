// The entry: styles, the page, and the first questions to the server.

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { start } from "./live";
import { remember } from "./settings/state";

const place = document.getElementById("console");
if (place) {
  place.replaceChildren();
  remember();
  render(<App />, place);
  start();
}
