"use strict";
(async () => {
{% include "explain_model.js" %}
{% include "explain_view.js" %}
{% include "explain_cards.js" %}
{% include "explain_tables.js" %}
{% include "explain_state.js" %}
})().catch((error) => {
  document.documentElement.dataset.errors += `${error}\n`;
  document.getElementById("failure").hidden = false;
});
